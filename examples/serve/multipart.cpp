#include "examples/serve/multipart.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::serve {
namespace {

constexpr std::size_t kLongestHead = 8192, kLongestName = 255, kLongestBoundary = 70;

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

/// Whether text begins with that, ignoring case.
bool begins_with(std::string_view text, std::string_view with) {
  return text.size() >= with.size() && std::equal(with.begin(), with.end(), text.begin(), same_letter);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// Extracts a quoted string or token from the front of `rest`, and skips up to the next ';'.
std::string take_value(std::string_view& rest) {
  std::string value;
  if (!rest.empty() && rest.front() == '"') {
    rest.remove_prefix(1);
    while (!rest.empty() && rest.front() != '"') {
      // Browsers write a quote in a name as %22, others as \"; a lone backslash is part of a path.
      if (rest.size() > 1 && rest[0] == '\\' && (rest[1] == '"' || rest[1] == '\\')) rest.remove_prefix(1);
      value += rest.front();
      rest.remove_prefix(1);
    }
    rest.remove_prefix(std::min(rest.find(';'), rest.size()));
  } else {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    value = trim(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return value;
}

/// A parameter of a header value such as `form-data; name="file"; filename="a.jpg"`.
std::optional<std::string> parameter(std::string_view value, std::string_view name) {
  value.remove_prefix(std::min(value.find(';'), value.size()));
  while (!value.empty()) {
    value = trim(value.substr(1));
    const std::size_t equals = value.find_first_of("=;");
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = trim(value.substr(0, equals));
    if (value[equals] == ';') {
      value.remove_prefix(equals);
      continue;
    }
    value = trim(value.substr(equals + 1));
    std::string text = take_value(value);
    if (key.size() == name.size() && begins_with(key, name)) return text;
  }
  return std::nullopt;
}

/// The value of a header field of a part; empty if missing.
std::string_view field(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    if (begins_with(line, name) && line.size() > name.size() && line[name.size()] == ':')
      return trim(line.substr(name.size() + 1));
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  return {};
}

/// A part's file; nullopt if it is another field.
std::optional<UploadedFile> file_of(std::string_view head, std::string_view bytes) {
  const std::string_view disposition = field(head, "content-disposition");
  UploadedFile file{parameter(disposition, "filename"), bytes};
  if (!file.name && parameter(disposition, "name") != "file") return std::nullopt;
  if (file.name && file.name->size() > kLongestName) file.name->resize(kLongestName);
  return file;
}

}  // namespace

bool is_multipart(std::string_view content_type) {
  constexpr std::string_view kType = "multipart/form-data";
  const std::string_view type = trim(content_type.substr(0, content_type.find(';')));
  return type.size() == kType.size() && begins_with(type, kType);
}

std::vector<UploadedFile> parse_multipart(std::string_view content_type, std::string_view body) {
  const std::string boundary = parameter(content_type, "boundary").value_or("");
  ATH_CHECK(!boundary.empty() && boundary.size() <= kLongestBoundary,
            "multipart: the content type must name a boundary of 1 to {} characters, but is '{}'",
            kLongestBoundary, printable(content_type.substr(0, 2 * kLongestBoundary)));
  const std::string line = "\r\n--" + boundary;
  constexpr const char* kNoEnd = "multipart: the body must end with its boundary, but does not";
  std::vector<UploadedFile> files;
  // The first boundary may be at the very beginning, without the line end that precedes others.
  std::size_t at = body.starts_with(std::string_view(line).substr(2)) ? line.size() - 2 : body.find(line);
  ATH_CHECK(at != std::string_view::npos, "{}", kNoEnd);
  if (!body.starts_with(std::string_view(line).substr(2))) at += line.size();
  while (!body.substr(at).starts_with("--")) {
    // After the boundary: the line's end, the header, an empty line, the bytes.
    const std::size_t head = body.find("\r\n", at);
    ATH_CHECK(head != std::string_view::npos, "{}", kNoEnd);
    const std::size_t head_end =
        body.substr(0, std::min(body.size(), head + kLongestHead)).find("\r\n\r\n", head);
    ATH_CHECK(head_end != std::string_view::npos,
              "multipart: the header of part {} must end within {} bytes, but does not", files.size(),
              kLongestHead);
    const std::size_t first = head_end + 4, end = body.find(line, first - 2);
    ATH_CHECK(end != std::string_view::npos, "{}", kNoEnd);
    const std::string_view bytes = end < first ? std::string_view() : body.substr(first, end - first);
    if (auto file = file_of(body.substr(head + 2, head_end - head), bytes)) {
      ATH_CHECK(files.size() < kMaxFiles, "multipart: there must be at most {} files, but there are more",
                kMaxFiles);
      files.push_back(std::move(*file));
    }
    at = end + line.size();
  }
  return files;
}

}  // namespace athanor::serve
