#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::serve {

/// A file in the body of a request.
struct UploadedFile {
  std::optional<std::string> name = {};  ///< that the client gives it
  std::string_view bytes = {};           ///< in the body
};

/// More files in one request are refused.
inline constexpr std::size_t kMaxFiles = 64;

/// Whether a Content-Type is multipart/form-data, which browsers and `curl -F` send.
bool is_multipart(std::string_view content_type);

/// The files of such a body: parts with a file name, or called `file`; other fields are passed over. Throws
/// ArgumentError where the type names no boundary, the body does not end with it, a part has no head, or
/// there are more than kMaxFiles files. Source: RFC 7578, RFC 2046 section 5.1.
std::vector<UploadedFile> parse_multipart(std::string_view content_type, std::string_view body);

}  // namespace athanor::serve
