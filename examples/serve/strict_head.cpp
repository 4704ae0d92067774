#include "examples/serve/strict_head.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

#include <microhttpd.h>

namespace athanor::serve {
namespace {

struct Field {
  std::string_view name, value;
};

std::vector<Field> fields_of(MHD_Connection* connection) {
  std::vector<Field> fields;
  const auto add = [](void* to, MHD_ValueKind, const char* name, std::size_t name_bytes, const char* value,
                      std::size_t value_bytes) {
    static_cast<std::vector<Field>*>(to)->push_back(
        {{name, name_bytes}, value ? std::string_view(value, value_bytes) : std::string_view()});
    return MHD_YES;
  };
  MHD_get_connection_values_n(connection, MHD_HEADER_KIND, +add, &fields);
  return fields;
}

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_token(std::string_view name) {
  static constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c)) || kMarks.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

/// Whether the request line and the fields, each with its CRLF, are all bytes of the head. libmicrohttpd
/// parses a head where it was received, and C strings hide what follows a NUL. A folded line is moved, and
/// leaves a gap.
bool is_whole(MHD_Connection* connection, std::string_view method, std::string_view target,
              std::string_view version, const std::vector<Field>& fields) {
  constexpr std::size_t kSpace = 1, kColon = 1, kLineEnd = 2;
  const auto* const size = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  if (!size) return false;
  std::size_t at = method.size() + kSpace + target.size() + kSpace;
  const auto continues = [&](std::string_view part) {
    if (part.data() != method.data() + at) return false;
    at += part.size();
    return true;
  };
  if (!continues(version)) return false;
  for (const Field& field : fields) {
    at += kLineEnd;
    if (!continues(field.name)) return false;
    at += kColon;
    while (method.data()[at] == ' ' || method.data()[at] == '\t') ++at;
    if (!continues(field.value)) return false;
  }
  return at + 2 * kLineEnd == size->header_size;
}

/// Whether it is one host, to a proxy as to us. Source: RFC 9112, section 3.2.
bool is_host(std::string_view name) {
  return name.find_first_of(" \t,/@?#\\\"<>{}|^`") == std::string_view::npos;
}

/// Of the fields that say where the body ends.
const char* fault_of_length(const std::vector<Field>& fields, std::string_view version) {
  int lengths = 0, codings = 0;
  for (const Field& field : fields) {
    if (same(field.name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
      ++lengths;
      if (field.value.empty() || field.value.find_first_not_of("0123456789") != std::string_view::npos)
        return "Content-Length must be a whole number";
    } else if (same(field.name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
      ++codings;
      if (!same(field.value, "chunked") || version == MHD_HTTP_VERSION_1_0)
        return "Transfer-Encoding must be chunked, in HTTP/1.1";
    }
  }
  return lengths + codings > 1 ? "there must be one Content-Length or Transfer-Encoding, but are several"
                               : nullptr;
}

}  // namespace

const char* fault_of_head(MHD_Connection* connection, std::string_view method, std::string_view target,
                          std::string_view version) {
  const std::vector<Field> fields = fields_of(connection);
  if (!is_token(method)) return "the method must be letters, digits and marks";
  if (target.find("%00") != std::string_view::npos || target.find(' ') != std::string_view::npos ||
      has_control(target))
    return "the path must have no NUL, space or control character";
  for (const Field& field : fields) {
    if (!is_token(field.name))
      return "the name of a header must be letters, digits and marks, up to its colon";
    if (has_control(field.value)) return "the value of a header must have no control characters";
    if (same(field.name, MHD_HTTP_HEADER_HOST) && !is_host(field.value)) return "Host must name one host";
  }
  if (const char* const fault = fault_of_length(fields, version)) return fault;
  const auto hosts = std::count_if(fields.begin(), fields.end(),
                                   [](const Field& one) { return same(one.name, MHD_HTTP_HEADER_HOST); });
  if (hosts > 1 || (hosts == 0 && version != MHD_HTTP_VERSION_1_0)) return "there must be one header Host";
  if (!is_whole(connection, method, target, version, fields))
    return "each header must be one line that ends with CR LF, without NUL";
  return nullptr;
}

}  // namespace athanor::serve
