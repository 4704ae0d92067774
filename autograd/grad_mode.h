#pragma once

namespace athanor {

/// Whether operations on this thread record nodes for a backward pass.
bool grad_enabled();
/// Whether this thread is inside an InferenceMode.
bool inference_mode();

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
