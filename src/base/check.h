// CHECK: ends the process on a bug of ours. Never for input: that is a Status.

#pragma once

#include <cstdio>
#include <cstdlib>

#define RENGA_CHECK(condition)                                                           \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
