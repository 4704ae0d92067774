#include "examples/serve/multipart.h"
#include "fuzz.h"

using namespace athanor;

/// A content type and a body: files lie in the body, in their order, or one line says what is wrong.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 2);
  const std::string_view body = parts[1];
  (void)serve::is_multipart(parts[0]);
  try {
    const char* end = body.data();
    for (const serve::UploadedFile& file : serve::parse_multipart(parts[0], body)) {
      if (file.bytes.empty()) continue;
      if (file.bytes.data() < end || file.bytes.data() + file.bytes.size() > body.data() + body.size())
        std::abort();
      end = file.bytes.data() + file.bytes.size();
    }
  } catch (const ArgumentError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
