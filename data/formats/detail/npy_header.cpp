#include "data/formats/detail/npy_header.h"

#include <cctype>
#include <limits>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"

namespace athanor::detail {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kMaxHeader = 1 << 20;
/// NumPy pads to 64; so much holds eight dimensions of any size.
constexpr std::size_t kWrittenHeader = 256;
constexpr std::size_t kMaxRank = 8;

/// Reads a Python dictionary of the one kind that stands in these files: strings, booleans, tuples of
/// numbers.
class Literal {
 public:
  Literal(const FileBytes& file, std::int64_t start, std::string_view text)
      : file_(file), start_(start), text_(text) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        if (peek() != '\'' && peek() != '"') fail("the type must be a simple one, but is a structure");
        header.descr = string();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.shape = shape();
      } else {
        fail(fmt::format("the keys must be descr, fortran_order and shape, once each, but there is {}",
                         printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) fail("the keys must be descr, fortran_order and shape");
    skip_space();
    if (at_ != text_.size()) fail("the header must end here, but goes on");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    file_.fail(start_ + static_cast<std::int64_t>(at_), message);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("the header must have '{}' here, but has not", wanted));
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("the header must have a string here, but has not");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("the string that begins here must end, but does not");
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  bool boolean() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("fortran_order must be True or False, but is not");
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(number());
      if (dims.size() > kMaxRank) fail(fmt::format("the shape must have at most {} dimensions", kMaxRank));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }
  std::int64_t number() {
    skip_space();
    const std::size_t first = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        fail("a dimension must be below 2^63, but is not");
      }
    }
    if (at_ == first) fail("a dimension must be a number, but is not");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote them
    return value;
  }

  const FileBytes& file_;
  std::int64_t start_;
  std::string_view text_;
  std::size_t at_ = 0;
};

/// The elements must be what the header says, and all that follows in a file of `size` bytes.
void check_elements(const FileBytes& file, const NpyHeader& header, std::int64_t size, int bytes_each,
                    std::string_view what) {
  std::optional<std::int64_t> count = 1;
  for (const std::int64_t dim : header.shape) count = count ? product({*count, dim}) : count;
  const std::optional<std::int64_t> bytes = count ? product({*count, bytes_each}) : count;
  if (!bytes) {
    file.fail(header.data, fmt::format("{} of shape [{}] must fit into the file, but do not", what,
                                       fmt::join(header.shape, ", ")));
  }
  const std::int64_t rest = size - header.data;
  if (rest < *bytes) {
    file.fail(header.data,
              fmt::format("{} must have {} bytes, but the file ends after {}", what, *bytes, rest));
  }
  if (rest > *bytes) file.fail(header.data + *bytes, "the file must end here, but goes on");
}

IntType label_type(const FileBytes& file, const NpyHeader& header) {
  const std::string& descr = header.descr;
  const bool right = descr.size() == 3 && std::string_view("<>=|").find(descr[0]) != std::string_view::npos &&
                     (descr[1] == 'i' || descr[1] == 'u') &&
                     std::string_view("1248").find(descr[2]) != std::string_view::npos;
  if (!right) {
    file.fail(0, fmt::format(
                     "labels must be of a whole type such as <i8, but are {}: astype(numpy.int64) in Python "
                     "makes them so",
                     printable(descr)));
  }
  return {descr[2] - '0', descr[1] == 'i', descr[0] == '>' ? std::endian::big : std::endian::little};
}

/// A header of version 1, of a length that depends on neither the shape nor the type.
std::vector<std::byte> npy_header(const char* descr, const std::vector<std::int64_t>& shape) {
  std::string text(kMagic);
  text +=
      {1, 0, static_cast<char>((kWrittenHeader - 10) & 0xff), static_cast<char>((kWrittenHeader - 10) >> 8)};
  text += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr,
                      fmt::join(shape, ", "));
  text.resize(kWrittenHeader - 1, ' ');
  text += '\n';
  const std::span<const std::byte> bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

NpyHeader read_npy_header(const FileBytes& file) {
  if (text_of(file.at(0, 8, "the magic number and version")).substr(0, kMagic.size()) != kMagic) {
    file.fail(0, "the file must begin with \\x93NUMPY, but does not");
  }
  const int version = std::to_integer<int>(file.bytes()[6]);
  if (version < 1 || version > 3) {
    file.fail(6, fmt::format("the version must be 1, 2 or 3, but is {}", version));
  }
  const std::int64_t start = version == 1 ? 10 : 12;
  const std::span<const std::byte> field = file.at(8, start - 8, "the header's length");
  const std::int64_t length = version == 1 ? load_le<std::uint16_t>(field) : load_le<std::uint32_t>(field);
  if (length > kMaxHeader) {
    file.fail(8, fmt::format("the header must have at most {} bytes, but has {}", kMaxHeader, length));
  }
  NpyHeader header = Literal(file, start, text_of(file.at(start, length, "the header"))).read();
  header.data = start + length;
  return header;
}

std::vector<std::byte> npy_images_header(std::int64_t count, const ImageSpec& spec) {
  return npy_header("|u1", {count, spec.height, spec.width, spec.channels});
}

std::vector<std::byte> npy_labels_file(const std::vector<std::int64_t>& labels) {
  std::vector<std::byte> file = npy_header("<i8", {std::ssize(labels)});
  const std::vector<std::byte> values = stored_labels(labels, {8, true, std::endian::little});
  file.insert(file.end(), values.begin(), values.end());
  return file;
}

NpyPair check_npy(const FileBytes& images, std::int64_t image_bytes, const FileBytes& labels,
                  std::int64_t label_bytes) {
  NpyPair pair{read_npy_header(images), read_npy_header(labels), {}, {}};
  const std::string& descr = pair.images.descr;
  if (descr != "|u1" && descr != "<u1" && descr != ">u1" && descr != "=u1") {
    images.fail(
        0, fmt::format("images must be of type |u1, but are {}: astype(numpy.uint8) in Python makes them so",
                       printable(descr)));
  }
  if (pair.images.fortran_order) {
    images.fail(0,
                "images must be in C order, but are in Fortran order: numpy.ascontiguousarray makes them so");
  }
  const std::vector<std::int64_t>& dims = pair.images.shape;
  if (dims.size() != 3 && dims.size() != 4) {
    images.fail(0, fmt::format("images must be [N, H, W] or [N, H, W, C], but the shape is [{}]",
                               fmt::join(dims, ", ")));
  }
  if (dims[0] == 0) images.fail(0, "there must be at least one image, but there is none");
  pair.spec = {dims[1], dims[2], dims.size() == 4 ? dims[3] : 1, 0};
  if (const auto bad = bad_image(pair.spec.height, pair.spec.width, pair.spec.channels)) images.fail(0, *bad);
  check_elements(images, pair.images, image_bytes, 1, "pixels");

  pair.label_type = label_type(labels, pair.labels);
  const std::vector<std::int64_t>& column = pair.labels.shape;
  const bool flat = column.size() == 1 || (column.size() == 2 && column[1] == 1);
  if (!flat || column[0] != dims[0]) {
    labels.fail(0, fmt::format("there must be one label for each of {} images, but the shape is [{}]",
                               dims[0], fmt::join(column, ", ")));
  }
  check_elements(labels, pair.labels, label_bytes, pair.label_type.bytes, "labels");
  return pair;
}

std::vector<std::int64_t> npy_labels(NpyPair& pair, const FileBytes& labels, std::int64_t classes) {
  std::vector<std::int64_t> values =
      read_labels(labels, pair.labels.data, pair.images.shape[0], pair.label_type, classes);
  pair.spec.classes = count_classes(values, classes);
  return values;
}

}  // namespace athanor::detail
