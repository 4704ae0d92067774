#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "examples/serve/answers.h"
#include "examples/serve/inference_request.h"
#include "examples/serve/models.h"

// What the Open Inference Protocol, version 2, says of models, over HTTP and JSON.
// Source: https://github.com/kserve/open-inference-protocol; index, load and unload as in Triton's extension
// for repositories of models.

namespace athanor::serve {

/// A path of the protocol.
struct InferencePath {
  enum What { server, live, ready, metadata, model_ready, infer, index, load, unload };
  What what = server;
  std::string model = {};
  std::string version = {};  ///< empty: the newest

  /// Those of its HTTP methods: "GET, HEAD, OPTIONS" or "POST, OPTIONS".
  const char* methods() const;
};

/// Nullopt for any other path.
std::optional<InferencePath> parse_inference_path(std::string_view path);

/// {"name", "version", "extensions"}
Reply server_metadata();
/// {"name", "versions", "platform", "inputs", "outputs", "parameters"}; the parameters are the names of the
/// classes, the mean and deviation of normalised pixels, and the input's other forms.
Reply model_metadata(const Models& models, const Model& model);
/// {"name", "version", "ready"} of a loaded model.
Reply model_ready(const Model& model);
/// 503 if a model cannot answer that should.
Reply server_ready(const Models& models);
/// A line for each version: {"name", "version", "state", "reason"}; only those that answer if the request's
/// body, {"ready": true}, says so. Throws ArgumentError on another body.
Reply model_index(const Models& models, std::string_view body);
/// Why there is no such model: 404, or 503 for one that is not loaded.
Reply no_model(const Models& models, std::string_view name, std::string_view version);
/// The outputs that were asked for, of all images; or, if an image could not be read, is late or has met a
/// server error, 400, 503 or 500.
Reply inference_reply(const Job& job, const InferenceRequest& request);

}  // namespace athanor::serve
