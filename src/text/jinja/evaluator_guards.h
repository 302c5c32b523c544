// The two guards of the evaluator: a scope that ends with its block, and the depth count.

#pragma once

#include <memory>
#include <utility>

#include "text/jinja/evaluator.h"

namespace renga::jinja {

// Runs what follows in a new scope inside `parent`.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator& evaluator, std::shared_ptr<Scope> parent)
      : evaluator_(evaluator), outer_(evaluator.scope_) {
    evaluator.scope_ = std::make_shared<Scope>();
    evaluator.scope_->parent = std::move(parent);
  }
  ~ScopeGuard() { evaluator_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> outer_;
};

class Evaluator::DepthGuard {
 public:
  explicit DepthGuard(Evaluator& evaluator) : evaluator_(evaluator) {
    ++evaluator_.depth_;
  }
  ~DepthGuard() { --evaluator_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  bool exceeded() const { return evaluator_.depth_ > evaluator_.max_depth_; }

 private:
  Evaluator& evaluator_;
};

}  // namespace renga::jinja
