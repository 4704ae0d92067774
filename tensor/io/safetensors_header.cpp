#include "tensor/io/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "tensor/base/printable.h"

namespace athanor::safetensors {
namespace {

using Json = nlohmann::json;

// By DType.
constexpr std::string_view kFormatNames[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "I8"};

template <class... Args>
[[noreturn]] void bad_file(const std::string& path, std::uint64_t at, fmt::format_string<Args...> format,
                           Args&&... args) {
  detail::fail<IoError>("safetensors: {}: at byte {}: {}", path, at,
                        fmt::format(format, std::forward<Args>(args)...));
}

// A name for messages: truncates untrusted ones.
std::string shown(std::string_view name) {
  constexpr std::size_t kMax = 80;
  return name.size() <= kMax ? printable(name) : fmt::format("{}...", printable(name.substr(0, kMax)));
}

// Feeds characters to the parser and keeps the position for messages.
class Cursor {
 public:
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;

  Cursor(const char* at, const char** position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *position_ = ++at_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** position_;
};

// Handles the parser's events and accepts only what the format allows:
//   {"__metadata__": {TEXT: TEXT, ...}, NAME: {"dtype": TEXT, "shape": [INT, ...], "data_offsets": [INT,
//   INT]}}
// Builds no tree and never nests deeper than three levels, so a hostile header costs no more than reading it.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  Reader(Header& header, const std::string& path, std::string_view text)
      : header_(header), path_(path), text_(text), position_(text.data()) {}

  void read() {
    Json::sax_parse(Cursor(text_.data(), &position_), Cursor(text_.data() + text_.size(), &position_), this);
    if (where_ != Where::done) fail("a header object", "nothing");
  }

  bool null() override { fail_value("null"); }
  bool boolean(bool) override { fail_value("a boolean"); }
  bool number_integer(number_integer_t) override { fail_value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    fail_value("a number that is not an integer below 2^64");
  }
  bool binary(binary_t&) override { fail_value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::numbers) fail_value("a number");
    if (field_ == Field::shape && numbers_.size() == static_cast<std::size_t>(kMaxRank))
      fail(fmt::format("a rank of at most {}", kMaxRank), "more");
    if (field_ == Field::offsets && numbers_.size() == 2) fail("two offsets", "more");
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (where_ == Where::metadata_value) {
      header_.metadata.emplace(key_, value);
      where_ = Where::metadata;
    } else if (where_ == Where::field_value && field_ == Field::dtype) {
      const auto dtype = dtype_of_format_name(value);
      if (!dtype) fail("dtype F64, F32, F16, BF16, I64, I32, U8 or BOOL", fmt::format("'{}'", shown(value)));
      info_.dtype = *dtype;
      where_ = Where::info;
    } else {
      fail_value("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (where_ == Where::start) {
      where_ = Where::top;
    } else if (where_ == Where::top_value) {
      const bool metadata = key_ == "__metadata__";
      where_ = metadata ? Where::metadata : Where::info;
      info_ = {};
      info_.name = key_;
      info_.at = offset();
      seen_ = 0;
    } else {
      fail_value("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (where_ == Where::top) {
      if (!names_.insert(name).second) fail("each name once", fmt::format("'{}' again", shown(name)));
      where_ = Where::top_value;
    } else if (where_ == Where::metadata) {
      if (header_.metadata.contains(name))
        fail("each metadata key once", fmt::format("'{}' again", shown(name)));
      where_ = Where::metadata_value;
    } else {
      begin_field(name);
      where_ = Where::field_value;
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (where_ == Where::info) {
      if (seen_ != kAllFields) fail("dtype, shape and data_offsets", "fewer");
      header_.tensors.push_back(info_);
      where_ = Where::top;
    } else if (where_ == Where::metadata) {
      where_ = Where::top;
    } else {
      where_ = Where::done;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::field_value || field_ == Field::dtype) fail_value("an array");
    numbers_.clear();
    where_ = Where::numbers;
    return true;
  }

  bool end_array() override {
    if (field_ == Field::shape) {
      set_shape();
    } else {
      if (numbers_.size() != 2) fail("two offsets", std::to_string(numbers_.size()));
      info_.begin = numbers_[0];
      info_.end = numbers_[1];
    }
    where_ = Where::info;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string_view what = error.what();
    const std::size_t from = what.find("syntax error");
    if (from != std::string_view::npos) what = what.substr(from);
    bad_file(path_, offset(), "expected a JSON header in UTF-8, but got a {}", what.substr(0, 200));
  }

 private:
  enum class Where { start, top, top_value, metadata, metadata_value, info, field_value, numbers, done };
  enum class Field { dtype, shape, offsets };
  static constexpr int kAllFields = 0b111;

  std::size_t offset() const { return kLengthBytes + static_cast<std::size_t>(position_ - text_.data()); }

  [[noreturn]] void fail(std::string_view expected, std::string_view got) const {
    const std::string of =
        info_.name.empty() || where_ < Where::info ? "" : fmt::format(" for tensor '{}'", shown(info_.name));
    bad_file(path_, offset(), "expected {}{}, but got {}", expected, of, got);
  }

  [[noreturn]] void fail_value(std::string_view got) const {
    constexpr std::string_view kExpected[] = {
        "a header object",   "a name", "an object with dtype, shape and data_offsets", "a metadata key",
        "a metadata string", "a field"};
    if (where_ == Where::numbers) fail("an integer >= 0", got);
    if (where_ == Where::field_value)
      fail(field_ == Field::dtype ? "dtype to be a string" : "shape and data_offsets to be arrays", got);
    fail(kExpected[std::min<std::size_t>(static_cast<std::size_t>(where_), 5)], got);
  }

  void begin_field(const std::string& name) {
    constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    const auto found = std::find(std::begin(kFields), std::end(kFields), name);
    if (found == std::end(kFields))
      fail("dtype, shape or data_offsets", fmt::format("field '{}'", shown(name)));
    const auto index = found - std::begin(kFields);
    field_ = static_cast<Field>(index);
    if (seen_ & (1 << index)) fail("each field once", fmt::format("'{}' again", name));
    seen_ |= 1 << index;
  }

  // Zeros must not hide an overflow: strides are products of the other sizes.
  void set_shape() {
    std::uint64_t count = 1;
    info_.shape = {};
    for (const std::uint64_t dim : numbers_) {
      const bool fits = dim < (1ull << 56) &&
                        !__builtin_mul_overflow(count, std::max<std::uint64_t>(dim, 1), &count) &&
                        count < (1ull << 56);
      if (!fits) fail("a shape of less than 2^56 elements", fmt::format("size {} among its sizes", dim));
      info_.shape.push_back(static_cast<std::int64_t>(dim));
    }
  }

  Header& header_;
  const std::string& path_;
  std::string_view text_;
  const char* position_;

  Where where_ = Where::start;
  Field field_ = Field::dtype;
  int seen_ = 0;  // one bit per field
  std::string key_;
  TensorInfo info_;
  std::vector<std::uint64_t> numbers_;
  std::set<std::string, std::less<>> names_;
};

// Every byte after the header belongs to exactly one tensor, and each range is as long as its tensor.
void check_ranges(const Header& header, std::uint64_t data_bytes, const std::string& path) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& info : header.tensors) {
    const std::string name = shown(info.name);
    if (info.begin > info.end || info.end > data_bytes)
      bad_file(path, info.at, "expected a range within the {} data bytes for tensor '{}', but got [{}, {}]",
               data_bytes, name, info.begin, info.end);
    const std::uint64_t need = static_cast<std::uint64_t>(info.shape.numel()) * size_of(info.dtype);
    if (info.end - info.begin != need)
      bad_file(path, info.at, "expected {} bytes for tensor '{}' ({} {}), but got the range [{}, {}]", need,
               name, info.shape, info.dtype, info.begin, info.end);
    order.push_back(&info);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t next = 0;
  for (const TensorInfo* info : order) {
    if (info->begin != next)
      bad_file(path, header.bytes + info->begin,
               "expected tensor '{}' to begin where the previous one ends ({}), "
               "but got {}: {}",
               shown(info->name), next, info->begin, info->begin < next ? "an overlap" : "a gap");
    next = info->end;
  }
  if (next != data_bytes)
    bad_file(path, header.bytes + next, "expected the last tensor to end with the file, but {} bytes follow",
             data_bytes - next);
}

}  // namespace

std::string_view format_name_of(DType dtype) {
  return kFormatNames[static_cast<std::size_t>(dtype)];
}

std::optional<DType> dtype_of_format_name(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (format_name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

Header read_header(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes)
    bad_file(path, file.size(), "expected 8 bytes of header length, but the file ends after {}", file.size());
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length < 2 || length > kMaxHeaderBytes)
    bad_file(path, 0, "expected a header length from 2 to {}, but got {}", kMaxHeaderBytes, length);
  if (length > file.size() - kLengthBytes)
    bad_file(path, 0, "expected a header of {} bytes, but the file ends {} bytes after its length", length,
             file.size() - kLengthBytes);

  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text[0] != '{') bad_file(path, kLengthBytes, "expected a header that begins with '{{'");
  // The parser would treat a zero byte as the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos)
    bad_file(path, kLengthBytes + zero, "expected a JSON header in UTF-8, but got a zero byte");

  Header header;
  header.bytes = kLengthBytes + length;
  Reader(header, path, text).read();
  check_ranges(header, file.size() - header.bytes, path);
  return header;
}

}  // namespace athanor::safetensors
