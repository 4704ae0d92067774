#include "data/formats/detail/npy_header.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::int64_t kMaxNpyHeader = 1 << 20;
/// NumPy pads to 64; this size fits eight dimensions of any size.
constexpr std::size_t kWrittenHeader = 256;
constexpr std::size_t kMaxRank = 8;

/// The header of an .npy file.
struct NpyHeader {
  std::string descr;  ///< "|u1", "<i8", ...
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t data = 0;  ///< where the elements start
};

/// Converts such a file's Python dictionary to JSON of the same length, so that offsets stay valid.
std::string as_json(std::string_view python) {
  constexpr std::string_view kPython = "'()TFL", kJson = "\"[]tf ";  // L: suffix of numbers in Python 2
  std::string text(python);
  for (char& c : text) {
    if (const std::size_t at = kPython.find(c); at != std::string_view::npos) c = kJson[at];
  }
  for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos; ++at) {
    const std::size_t next = text.find_first_not_of(" \n\t", at + 1);
    if (next != std::string::npos && (text[next] == ']' || text[next] == '}')) text[at] = ' ';
  }
  return text;
}

/// The dictionary `text` at offset `start`.
NpyHeader read_dictionary(const FileBytes& file, std::int64_t start, const std::string& text) {
  json all;
  std::vector<std::string> keys;
  try {
    all = json::parse(text, [&](int, json::parse_event_t event, const json& parsed) {
      if (event == json::parse_event_t::key) keys.push_back(parsed.get<std::string>());
      return true;
    });
  } catch (const json::exception& error) {
    const auto* parsing = dynamic_cast<const json::parse_error*>(&error);
    const std::string_view what = error.what();
    file.fail(start + (parsing ? static_cast<std::int64_t>(parsing->byte) - 1 : 0),
              "the header must be a dictionary, but got: {}", printable(what.substr(what.find(" - ") + 3)));
  }
  std::sort(keys.begin(), keys.end());
  if (keys != std::vector<std::string>{"descr", "fortran_order", "shape"}) {
    file.fail(start, "the keys must be descr, fortran_order and shape, each once, but are {}",
              printable(fmt::format("{}", fmt::join(keys, ", "))));
  }
  const json &descr = all["descr"], &order = all["fortran_order"], &shape = all["shape"];
  if (!descr.is_string()) file.fail(start, "the dtype must be a scalar type, but is structured");
  if (!order.is_boolean()) file.fail(start, "fortran_order must be True or False, but is not");
  if (!shape.is_array() || shape.size() > kMaxRank) {
    file.fail(start, "the shape must be a tuple of at most {} dimensions, but is not", kMaxRank);
  }
  NpyHeader header{descr.get<std::string>(), order.get<bool>(), {}, 0};
  for (const json& dim : shape) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > INT64_MAX) {
      file.fail(start, "a dimension must be a number in [0, 2^63), but is {}", shown(dim));
    }
    header.shape.push_back(dim.get<std::int64_t>());
  }
  return header;
}

/// Throws IoError unless `file` begins with such a header, of version 1, 2 or 3.
NpyHeader read_npy_header(const FileBytes& file) {
  FilePages pages(file);
  const auto first = pages.at(0, 8, "the magic number and version");
  const int version = std::to_integer<int>(first[6]);
  if (!text_of(first).starts_with(kNpyMagic)) {
    file.fail(0, "the file must begin with \\x93NUMPY, but does not");
  }
  if (version < 1 || version > 3) file.fail(6, "the version must be 1, 2 or 3, but is {}", version);
  const std::int64_t start = version == 1 ? 10 : 12;
  const std::span<const std::byte> field = pages.at(8, start - 8, "the header's length");
  const std::int64_t length = version == 1 ? load_le<std::uint16_t>(field) : load_le<std::uint32_t>(field);
  if (length > kMaxNpyHeader) {
    file.fail(8, "the header must have at most {} bytes, but has {}", kMaxNpyHeader, length);
  }
  NpyHeader header = read_dictionary(file, start, as_json(text_of(pages.at(start, length, "the header"))));
  header.data = start + length;
  return header;
}

/// The elements must match the header and fill the rest of a file of `size` bytes.
void check_elements(const FileBytes& file, const NpyHeader& header, std::int64_t size, int bytes_each,
                    std::string_view what) {
  std::optional<std::int64_t> bytes = bytes_each;
  for (const std::int64_t dim : header.shape) bytes = bytes ? product({*bytes, dim}) : bytes;
  const std::int64_t rest = size - header.data;
  if (!bytes) {
    file.fail(header.data, "{} of shape [{}] must fit into the file, but do not", what,
              fmt::join(header.shape, ", "));
  }
  if (rest < *bytes) {
    file.fail(header.data, "{} must have {} bytes, but the file ends after {}", what, *bytes, rest);
  }
  if (rest > *bytes) file.fail(header.data + *bytes, "the file must end here, but more bytes follow");
}

/// That of whole numbers, if it is one.
std::optional<IntType> whole_type(const std::string& descr) {
  const std::optional<IntType> type =
      descr.size() == 3 && std::string_view("<>=|").find(descr[0]) != std::string_view::npos
          ? int_type(fmt::format("{}{}", descr[1], 8 * (descr[2] - '0')))
          : std::nullopt;
  if (!type) return std::nullopt;
  return IntType{type->bytes, type->is_signed, descr[0] == '>' ? std::endian::big : std::endian::little};
}

IntType label_type(const FileBytes& file, const std::string& descr) {
  const std::optional<IntType> type = whole_type(descr);
  if (!type) {
    file.fail(
        0,
        "labels must have an integer dtype such as <i8, but have {}: convert them with astype(numpy.int64)",
        printable(descr));
  }
  return *type;
}

/// A header of version 1, of fixed length for any shape and type.
ByteWriter npy_header(const char* descr, const std::vector<std::int64_t>& shape) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr,
                                 fmt::join(shape, ", "));
  ByteWriter out;
  out.add(kNpyMagic).le(std::uint16_t{1}).le(std::uint16_t{kWrittenHeader - 10});
  text.resize(kWrittenHeader - out.bytes.size() - 1, ' ');
  out.add(text + '\n');
  return out;
}

}  // namespace

std::vector<std::byte> npy_images_header(std::int64_t count, const ImageSpec& spec) {
  return npy_header("|u1", {count, spec.height, spec.width, spec.channels}).bytes;
}

std::vector<std::byte> npy_labels_file(const std::vector<std::int64_t>& labels) {
  const IntType i64{8, true, std::endian::little};
  return npy_header("<i8", {std::ssize(labels)}).add(stored_labels(labels, i64)).bytes;
}

NpyPair check_npy_images(const FileBytes& images, std::int64_t image_bytes) {
  const NpyHeader of_images = read_npy_header(images);
  const std::string& descr = of_images.descr;
  if (descr != "|u1" && descr != "<u1" && descr != ">u1" && descr != "=u1") {
    images.fail(
        0,
        "images must have dtype |u1, but have {}: bring their values to 0 to 255, then astype(numpy.uint8)",
        printable(descr));
  }
  if (of_images.fortran_order) {
    images.fail(
        0, "images must be in C order, but are in Fortran order: convert them with numpy.ascontiguousarray");
  }
  const std::vector<std::int64_t>& dims = of_images.shape;
  if (dims.size() != 3 && dims.size() != 4) {
    images.fail(0, "images must be [N, H, W] or [N, H, W, C], but the shape is [{}]", fmt::join(dims, ", "));
  }
  if (dims[0] == 0) images.fail(0, "the array must have at least one image, but has none");
  const ImageSpec spec{dims[1], dims[2], dims.size() == 4 ? dims[3] : 1, 0};
  if (const auto bad = bad_image(spec)) images.fail(0, "{}", *bad);
  if (const auto bad = channels_first(spec)) images.fail(0, "{}", *bad);
  check_elements(images, of_images, image_bytes, 1, "pixels");
  return {.image_data = of_images.data, .count = dims[0], .spec = spec};
}

NpyPair check_npy(const FileBytes& images, std::int64_t image_bytes, const FileBytes& labels,
                  std::int64_t label_bytes) {
  NpyPair pair = check_npy_images(images, image_bytes);
  const NpyHeader of_labels = read_npy_header(labels);
  const std::vector<std::int64_t>& column = of_labels.shape;
  const IntType type = label_type(labels, of_labels.descr);
  const bool flat = column.size() == 1 || (column.size() == 2 && column[1] == 1);
  if (!flat || column[0] != pair.count) {
    labels.fail(0, "there must be one label for each of {} images, but the shape is [{}]", pair.count,
                fmt::join(column, ", "));
  }
  check_elements(labels, of_labels, label_bytes, type.bytes, "labels");
  pair.label_data = of_labels.data;
  pair.label_type = type;
  return pair;
}

std::vector<std::int64_t> npy_labels(const NpyPair& pair, const FileBytes& labels) {
  return read_labels(labels, pair.label_data, pair.count, pair.label_type);
}

std::vector<float> npy_numbers(const FileBytes& labels, std::int64_t count) {
  const NpyHeader header = read_npy_header(labels);
  const std::string& descr = header.descr;
  const std::vector<std::int64_t>& shape = header.shape;
  if ((shape.size() != 1 && shape.size() != 2) || shape[0] != count || shape.back() == 0)
    labels.fail(0,
                "there must be as many labels or values of each of {} images, [N, K], but the shape is [{}]",
                count, fmt::join(shape, ", "));
  const std::int64_t each = shape.size() == 2 ? shape[1] : 1;
  if (header.fortran_order && each > 1)
    labels.fail(
        0, "labels must be in C order, but are in Fortran order: convert them with numpy.ascontiguousarray");
  const bool is_float = descr == "<f4" || descr == "<f8", is_bool = descr == "|b1";
  const std::optional<IntType> whole = is_bool ? IntType{} : whole_type(descr);
  if (!is_float && !whole)
    labels.fail(
        0,
        "labels must be bool, whole numbers, f4 or f8, but are {}: convert them with astype(numpy.float32)",
        printable(descr));
  const IntType type = is_float ? IntType{descr[2] - '0'} : *whole;
  check_elements(labels, header, labels.size(), type.bytes, "labels");
  std::vector<float> numbers(static_cast<std::size_t>(count * each));
  if (!is_float) {
    const std::vector<std::int64_t> read = read_integers(labels, header.data, count * each, type);
    std::ranges::transform(read, numbers.begin(), [](std::int64_t x) { return static_cast<float>(x); });
    return numbers;
  }
  std::vector<std::byte> scratch;
  const std::span<const std::byte> from =
      labels.at(header.data, count * each * type.bytes, "labels", scratch);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::span<const std::byte> one = from.subspan(i * static_cast<std::size_t>(type.bytes));
    numbers[i] = type.bytes == 4 ? load_le<float>(one) : static_cast<float>(load_le<double>(one));
  }
  return numbers;
}

}  // namespace athanor::detail
