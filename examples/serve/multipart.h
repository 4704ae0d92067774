#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::serve {

/// A file in the body of a request.
struct UploadedFile {
  std::optional<std::string> name = {};  ///< given by the client
  std::string_view bytes = {};           ///< in the body
};

/// Maximum number of files in a request.
inline constexpr std::size_t kMaxFiles = 64;

/// Whether a Content-Type is multipart/form-data, which browsers and `curl -F` send.
bool is_multipart(std::string_view content_type);

/// The files of such a body: parts with a file name, or named `file`; other fields are ignored. Throws
/// ArgumentError if the type has no boundary, the body does not end with it, a part has no header, or there
/// are more than kMaxFiles files. Source: RFC 7578, RFC 2046 section 5.1.
std::vector<UploadedFile> parse_multipart(std::string_view content_type, std::string_view body);

}  // namespace athanor::serve
