#pragma once

#include <string>

#include "examples/serve/service.h"

namespace athanor::serve {

/// What the client is sent: an HTTP status and JSON that ends with a newline.
struct Reply {
  int code = 200;
  std::string text = {};
};

/// {"error": "..."}
Reply refusal(int code, const std::string& error);
/// Of a job that is done. One file: {"image", "top"}, as `athanor predict --json` prints it; several:
/// {"images": [...]}, where a file that could not be read has {"image", "error"}. 400 where none could be
/// read, 500 where none was answered through a fault of ours.
Reply reply_to(const Job& job);
/// {"status", "model", "classes", "images": [height, width, channels], "generation"}
Reply health(const Model& model);

}  // namespace athanor::serve
