#include "data/formats/idx.h"

#include <string>

#include <fmt/ranges.h>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/writing.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

// A magic number (two zero bytes, the element type, the number of dimensions), the dimensions as big-endian
// 32-bit numbers, then the elements.
constexpr std::uint32_t kU8 = 0x08, kI8 = 0x09, kI16 = 0x0b, kI32 = 0x0c;
constexpr char kAdvice[] = "fetch or write the file again";

constexpr std::int64_t kMaxIdxHeader = 4 + 4 * 255;

struct IdxHeader {
  std::uint32_t type = 0;
  std::vector<std::int64_t> dims;
  std::int64_t bytes = 0;
};

IdxHeader read_idx_header(const detail::FileBytes& whole) {
  const detail::FileBytes file = whole.head(kMaxIdxHeader);
  detail::FilePages pages(file);
  const auto magic = detail::load_be<std::uint32_t>(pages.at(0, 4, "the magic number"));
  IdxHeader header{magic >> 8, {}, 4};
  if (magic >> 16 != 0) {
    file.fail(0, "the magic number must begin with two zero bytes, but is {:#010x}", magic);
  }
  for (std::uint32_t i = 0; i < (magic & 0xff); ++i, header.bytes += 4) {
    const auto dim =
        detail::load_be<std::uint32_t>(pages.at(header.bytes, 4, fmt::format("dimension {}", i)));
    if (dim == 0) file.fail(header.bytes, "dimension {} must be positive, but is 0", i);
    header.dims.push_back(dim);
  }
  return header;
}

std::filesystem::path labels_beside(const std::filesystem::path& images) {
  const std::filesystem::path path = detail::labels_beside(images, "idx", {{"images", "labels"}});
  std::string name = path.filename().string();
  for (const char* of_images : {"idx3", "idx4"}) {
    if (const std::size_t at = name.rfind(of_images); at != std::string::npos) {
      return path.parent_path() / name.replace(at, 4, "idx1");
    }
  }
  return path;
}

/// Plain or .gz, whichever exists.
std::filesystem::path existing_labels_beside(const std::filesystem::path& images, const char* format) {
  std::filesystem::path name = labels_beside(images).filename();
  if (name.extension() == ".gz") name.replace_extension();
  return detail::find_plain_or_gz(images.parent_path(), name.string(), format, kAdvice);
}

detail::ByteWriter header_bytes(std::uint32_t type, const std::vector<std::int64_t>& dims) {
  detail::ByteWriter out;
  out.be(type << 8 | static_cast<std::uint32_t>(dims.size()));
  for (const std::int64_t dim : dims) out.be(static_cast<std::uint32_t>(dim));
  return out;
}

std::vector<std::byte> images_header(std::int64_t count, const ImageSpec& spec) {
  ATH_CHECK(count <= UINT32_MAX, "idx: a file holds at most {} samples, but got {}", UINT32_MAX, count);
  std::vector<std::int64_t> dims{count, spec.height, spec.width};
  if (spec.channels != 1) dims.push_back(spec.channels);
  return header_bytes(kU8, dims).bytes;
}

std::vector<std::byte> labels_file(const detail::UniformSamples& samples) {
  const std::vector<std::int64_t>& labels = samples.labels();
  const bool bytes_suffice = detail::smallest_type(labels).bytes == 1;
  const detail::IntType type{bytes_suffice ? 1 : 4, true, std::endian::big};
  return header_bytes(bytes_suffice ? kU8 : kI32, {std::ssize(labels)})
      .add(detail::stored_labels(labels, type))
      .bytes;
}

detail::IntType label_type(const detail::FileBytes& file, const IdxHeader& header) {
  switch (header.type) {
    case kU8: return {1, false, std::endian::big};
    case kI8: return {1, true, std::endian::big};
    case kI16: return {2, true, std::endian::big};
    case kI32: return {4, true, std::endian::big};
    default:
      file.fail(0, "labels must be whole numbers (type 0x08, 0x09, 0x0b or 0x0c), but are of type {:#04x}",
                header.type);
  }
}

/// Height, width and channels, if a file can hold such images.
ImageSpec image_spec(const detail::FileBytes& file, const IdxHeader& header, std::int64_t classes) {
  if (header.type != kU8) {
    file.fail(0, "images must be unsigned bytes (type 0x08), but are of type {:#04x}", header.type);
  }
  const std::vector<std::int64_t>& dims = header.dims;
  if (dims.size() != 3 && dims.size() != 4) {
    file.fail(0, "images must have 3 or 4 dimensions, but have {}", dims.size());
  }
  const ImageSpec spec{dims[1], dims[2], dims.size() == 4 ? dims[3] : 1, classes};
  if (const auto bad = detail::bad_image(spec)) file.fail(8, "{}", *bad);
  return spec;
}

/// Decompresses the file's content after its header, and checks its length.
void expand(detail::FileBytes& file, const IdxHeader& header, std::int64_t bytes, const char* what) {
  file.expand(header.bytes + bytes);
  file.must_have(header.bytes, bytes, what);
  file.must_end_at(header.bytes + bytes);
}

}  // namespace

// Compares both headers before decompressing anything large; labels come before pixels.
std::unique_ptr<Dataset> open_idx(const std::filesystem::path& images, const IdxOptions& options) {
  detail::check_classes(options.classes, options.format);
  const auto file = std::make_shared<detail::FileBytes>(images, options.format, kAdvice);
  const IdxHeader header = read_idx_header(*file);
  const ImageSpec spec = image_spec(*file, header, options.classes);
  const std::int64_t count = header.dims[0];
  const std::optional<std::int64_t> bytes = detail::product({count, spec.bytes()});
  if (!bytes) file->fail(4, "{} images must fit into the file, but do not", count);

  detail::FileBytes label_file(
      options.labels.empty() ? existing_labels_beside(images, options.format) : options.labels,
      options.format, kAdvice);
  const IdxHeader label_header = read_idx_header(label_file);
  const detail::IntType type = label_type(label_file, label_header);
  if (label_header.dims.size() != 1 || label_header.dims[0] != count) {
    label_file.fail(0, "there must be one label for each of {} images, but the shape is [{}]", count,
                    fmt::join(label_header.dims, ", "));
  }
  expand(label_file, label_header, count * type.bytes, "labels");
  const std::vector<std::int64_t> labels =
      detail::read_labels(label_file, label_header.bytes, count, type, options.classes);
  expand(*file, header, *bytes, "pixels");
  return detail::dense_store(file, header.bytes, spec, labels);
}

std::unique_ptr<SampleWriter> create_idx(const std::filesystem::path& images) {
  return detail::create_dense(images, detail::UniformSamples("idx"), images_header,
                              {{labels_beside(images), labels_file}});
}

}  // namespace athanor
