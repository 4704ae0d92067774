#include "tensor/io/file_kind.h"

#include <algorithm>
#include <cstddef>

namespace athanor {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::size_t at;
  std::string_view bytes;
  const char* name;
};
// The first that fits counts.
constexpr Kind kKinds[] = {
    {0, "\xff\xd8\xff"sv, "a JPEG"},
    {0, "\x89PNG\r\n\x1a\n"sv, "a PNG"},
    {0, "\x89PNG"sv, "a PNG whose first bytes are damaged"},
    {0, "GIF8"sv, "a GIF"},
    {8, "WEBP"sv, "a WebP"},
    {0, "BM"sv, "a BMP"},
    {0, "II*\0"sv, "a TIFF"},
    {0, "MM\0*"sv, "a TIFF"},
    {4, "ftypavi"sv, "AVIF"},
    {4, "ftyphe"sv, "HEIC"},
    {4, "ftypmif1"sv, "HEIC"},
    {4, "ftypmsf1"sv, "HEIC"},
    {4, "ftyp"sv, "a video"},
    {0, "\xff\x0a"sv, "JPEG XL"},
    {4, "JXL "sv, "JPEG XL"},
    {4, "jP  "sv, "JPEG 2000"},
    {0, "8BPS"sv, "a Photoshop document"},
    {0, "%PDF"sv, "a PDF"},
    {0, "\x89HDF"sv, "HDF5"},
    {0, "\x93NUMPY"sv, "an array of NumPy"},
    {0, "GGUF"sv, "GGUF"},
    {0, "PK\x03\x04"sv, "a ZIP archive"},
    {257, "ustar"sv, "a tar archive"},
    {0, kGzip, "gzip"},
    {0, "BZh"sv, "bzip2"},
    {0, "\xfd\x37zXZ"sv, "xz"},
    {0, "\x28\xb5\x2f\xfd"sv, "zstd"},
    {0, "\x7f\x45LF"sv, "a program"},
    {0, "version https://git-lfs"sv, "a pointer of Git LFS (git lfs pull fetches the file)"},
};

/// An ONNX file begins with its version, then the name of the program that wrote it.
bool is_onnx(std::string_view head) {
  return head.size() > 3 && head[0] == 8 && head[1] > 0 && head[1] < 32 && head[2] == 18;
}

bool is_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= ' ' ? byte != 0x7f : c == '\t' || c == '\n' || c == '\r' || c == '\f';
  });
}

}  // namespace

std::string file_kind(std::string_view head) {
  if (head.empty()) return "empty";
  for (const Kind& kind : kKinds) {
    if (kind.at < head.size() && head.substr(kind.at).starts_with(kind.bytes)) return kind.name;
  }
  if (is_onnx(head)) return "an ONNX graph";
  if (!is_text(head)) return "";
  const std::size_t begin = std::min(head.find_first_not_of(" \f\n\r\t"), head.size());
  if (head.find("<svg") != head.npos) return "an SVG";
  return head.substr(begin).starts_with('<') ? "a web page" : "text";
}

}  // namespace athanor
