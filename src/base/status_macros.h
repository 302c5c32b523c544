// RENGA_RETURN_IF_ERROR and RENGA_ASSIGN_OR_RETURN: pass a failure up unchanged.

#pragma once

#include "renga/status.h"

#define RENGA_CONCAT_INNER(a, b) a##b
#define RENGA_CONCAT(a, b) RENGA_CONCAT_INNER(a, b)

#define RENGA_RETURN_IF_ERROR(expression)                                  \
  do {                                                                     \
    if (::renga::Status renga_status = (expression); !renga_status.ok()) { \
      return renga_status;                                                 \
    }                                                                      \
  } while (false)

// RENGA_ASSIGN_OR_RETURN(const int x, ParseInt(text));
#define RENGA_ASSIGN_OR_RETURN(target, expression) \
  RENGA_ASSIGN_OR_RETURN_INNER(RENGA_CONCAT(renga_or_, __LINE__), target, expression)
#define RENGA_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return result.status();                      \
  target = std::move(*result)
