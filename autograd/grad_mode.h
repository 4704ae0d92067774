#pragma once

namespace athanor {

/// Whether operations on this thread record nodes for a backward pass.
bool grad_enabled();
/// Whether this thread is inside an InferenceMode.
bool inference_mode();

/// Whether checkpoint() is computing a part of the model for the second time on this thread: what is updated
/// once per step (running statistics) stays as it is.
bool recomputing();

/// While alive, recomputing() holds.
class Recomputing {
 public:
  Recomputing();
  ~Recomputing();
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

 private:
  bool saved_;
};

/// While alive, nothing on this thread is recorded. Module modes (train, eval) are untouched. Nests.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool saved_;
};

/// Records again inside a NoGrad: recomputation in checkpoint() needs it.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool saved_;
};

/// Like NoGrad; besides, results are marked, and using one where a backward pass would have to save it is an
/// error naming both operations. Makes no node, no saved tensor.
class InferenceMode {
 public:
  InferenceMode();
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  bool saved_enabled_;
  bool saved_inference_;
};

}  // namespace athanor
