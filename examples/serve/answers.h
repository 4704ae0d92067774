#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "examples/serve/service.h"

namespace athanor::serve {

/// The response to a client: an HTTP status and JSON that ends with a newline.
struct Reply {
  int code = 200;
  std::string text = {};
  std::optional<std::size_t> json_bytes = {};  ///< tensors follow that many bytes of JSON
};

/// {"error": "..."}
Reply refusal(int code, const std::string& error);
/// The reply to a completed job. One file: {"image", "top"} or what else the model's task has, as `athanor
/// predict --json` prints it; several:
/// {"images": [...]}, where an unreadable file has {"image", "error"}. 400 if none could be read, 500 if none
/// was answered because of a server error, 503 if one is late.
Reply reply_to(const Job& job);
/// {"status", "model", "classes", "images": [height, width, channels], "generation"}, "task" if it is not to
/// classify, and "models" if names, the number of them, are several; that and "status" alone without a model.
Reply health(const Model* model, std::size_t names);

}  // namespace athanor::serve
