#include "examples/serve/inference_request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::serve {
namespace {

using Value = nlohmann::json;

constexpr std::size_t kMostValues = 1000, kMostDepth = 8;  // of a request, without its tensor
constexpr char kInput[] = "images";

constexpr OutputKind kOutputs[] = {{OutputKind::logits, "logits", "FP32", true},
                                   {OutputKind::probabilities, "probabilities", "FP32", true},
                                   {OutputKind::classes, "classes", "INT64", false},
                                   {OutputKind::logits, "logits", "FP32", true},
                                   {OutputKind::probabilities, "probabilities", "FP32", true},
                                   {OutputKind::labels, "labels", "BOOL", true},
                                   {OutputKind::values, "values", "FP32", true}};

std::string in_quotes(std::string_view text) {
  return "'" + printable(text.substr(0, 60)) + "'";
}

/// The bytes of a text in base64, with or without its final `=`. Source: RFC 4648, section 4.
std::string from_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const std::array<std::int8_t, 256> values = [] {
    std::array<std::int8_t, 256> all;
    all.fill(-1);
    for (std::size_t i = 0; i < kDigits.size(); ++i)
      all[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
    return all;
  }();
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::int8_t value = values[static_cast<unsigned char>(c)];
    ATH_CHECK(value >= 0, "images: a file in JSON must be in base64, but has the character {}",
              in_quotes({&c, 1}));
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xff);
  }
  ATH_CHECK(held < 6, "images: a file in JSON must be in base64, but its last character is alone");
  return bytes;
}

/// Reads JSON in one pass. All of it becomes a value of a bounded size but the elements of a tensor, the
/// `data` of an entry of `inputs`, which are kept as they will be used.
class Reader final : public nlohmann::json_sax<Value> {
 public:
  explicit Reader(const InferenceLimits& limits)
      : most_texts_(limits.most), most_numbers_(limits.most * limits.images.bytes()) {}

  bool null() override { return add(nullptr, "null"); }
  bool boolean(bool value) override { return add(value, "a truth value"); }
  bool number_integer(std::int64_t value) override {
    return in_data() ? number(static_cast<float>(value), false) : add(value, "a number");
  }
  bool number_unsigned(std::uint64_t value) override {
    return in_data() ? number(static_cast<float>(value), value <= 255) : add(value, "a number");
  }
  bool number_float(double value, const std::string&) override {
    return in_data() ? number(static_cast<float>(value), false) : add(value, "a number");
  }
  bool string(std::string& value) override {
    if (!in_data()) return add(std::move(value), "a text");
    ATH_CHECK(std::ssize(files) < most_texts_, "images: must have at most {} files, but has more",
              most_texts_);
    files.push_back(from_base64(value));
    return true;
  }
  bool binary(Value::binary_t&) override { return false; }  // not of JSON
  bool start_object(std::size_t) override { return open(Value::object()); }
  bool key(std::string& name) override {
    const Value& object = *open_.back();
    ATH_CHECK(!object.contains(name) && !(has_data && open_.size() == 3 && name == "data"),
              "the request has {} twice", in_quotes(name));
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    if (in_data()) {
      ATH_CHECK(++data_depth_ <= kMostDepth, "data: must be nested at most {} deep, but is deeper",
                kMostDepth);
      return true;
    }
    const bool is_input = open_.size() == 3 && open_[1] == inputs_ && open_[2]->is_object();
    if (!is_input || key_ != "data") {
      open(Value::array());
      if (open_.size() == 2 && key_ == "inputs") inputs_ = open_.back();
      return true;
    }
    ATH_CHECK(!has_data, "inputs: must be one tensor, but are several");
    has_data = true;
    data_depth_ = 1;
    return true;
  }
  bool end_array() override {
    if (!in_data()) return close();
    --data_depth_;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const Value::exception&) override {
    detail::fail<>("the request must be JSON, but is not at byte {}", at);
  }

  Value root;
  bool has_data = false, all_bytes = true;
  std::vector<float> numbers;
  std::vector<std::string> files;

 private:
  bool in_data() const { return data_depth_ > 0; }
  bool number(float value, bool is_byte) {
    ATH_CHECK(std::ssize(numbers) < most_numbers_, "images: must have at most {} numbers, but has more",
              most_numbers_);
    numbers.push_back(value);
    all_bytes &= is_byte;
    return true;
  }
  Value& place(Value value) {
    ATH_CHECK(++values_ <= kMostValues, "the request must have at most {} values beside its tensor",
              kMostValues);
    if (open_.empty()) return root = std::move(value);
    Value& outer = *open_.back();
    if (outer.is_array()) return outer.emplace_back(std::move(value));
    return outer[key_] = std::move(value);
  }
  bool add(Value value, const char* what) {
    ATH_CHECK(!in_data(), "data: must be numbers or files in base64, but has {}", what);
    place(std::move(value));
    return true;
  }
  bool open(Value value) {
    ATH_CHECK(!in_data(), "data: must be numbers or files in base64, but has an object");
    ATH_CHECK(open_.size() < kMostDepth, "the request must be nested at most {} deep, but is deeper",
              kMostDepth);
    open_.push_back(&place(std::move(value)));  // stays where it is: no sibling comes before it is closed
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::int64_t most_texts_, most_numbers_;
  std::vector<Value*> open_;  // the arrays and objects around the next value
  std::string key_;
  const Value* inputs_ = nullptr;
  std::size_t values_ = 0, data_depth_ = 0;
};

const Value* member(const Value& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() ? nullptr : &*at;
}

const Value& object_field(const Value& object, const char* name) {
  static const Value none = Value::object();
  const Value* const found = member(object, name);
  if (!found) return none;
  ATH_CHECK(found->is_object(), "{}: must be an object, but is {}", name, found->type_name());
  return *found;
}

std::string text_field(const Value& object, const char* name) {
  const Value* const found = member(object, name);
  ATH_CHECK(found && found->is_string(), "{}: must be a text, but {}", name,
            found ? fmt::format("is {}", found->type_name()) : "is missing");
  return found->get<std::string>();
}

bool flag_field(const Value& parameters, const char* name, bool fallback) {
  const Value* const found = member(parameters, name);
  if (!found) return fallback;
  ATH_CHECK(found->is_boolean(), "{}: must be true or false, but is {}", name, found->type_name());
  return found->get<bool>();
}

std::optional<std::int64_t> whole_field(const Value& parameters, const char* name) {
  const Value* const found = member(parameters, name);
  if (!found) return std::nullopt;
  ATH_CHECK(found->is_number_integer() && *found >= 0 && *found <= std::int64_t{1} << 53,
            "{}: must be a whole number, but is {}", name, found->dump().substr(0, 40));
  return found->get<std::int64_t>();
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

ImageKind kind_of(const std::string& datatype) {
  if (datatype == "UINT8") return ImageKind::bytes;
  if (datatype == "FP32") return ImageKind::floats;
  ATH_CHECK(datatype == "BYTES", "images: datatype must be UINT8, FP32 or BYTES, but is {}",
            in_quotes(datatype));
  return ImageKind::file;
}

/// The number of images of an input, whose shape is checked.
std::int64_t images_of(const Value& input, ImageKind kind, const InferenceLimits& limits) {
  const Value* const given = member(input, "shape");
  ATH_CHECK(given && given->is_array(), "images: shape must be a list of sizes");
  std::vector<std::int64_t> shape;
  for (const Value& size : *given) {
    ATH_CHECK(size.is_number_unsigned() && size <= std::int64_t{1} << 53,
              "images: shape must be whole numbers, but has {}", size.dump().substr(0, 40));
    shape.push_back(size.get<std::int64_t>());
  }
  const std::int64_t n = shape.empty() ? 0 : shape[0];
  const ImageSpec& images = limits.images;
  if (kind == ImageKind::file) {
    ATH_CHECK(shape.size() == 1 || (shape.size() == 2 && shape[1] == 1),
              "images: shape of BYTES must be [N] or [N, 1], but is {}", text_of(shape));
  } else {
    const std::vector<std::int64_t> wanted{n, images.height, images.width, images.channels};
    ATH_CHECK(shape == wanted, "images: shape must be [N, {}, {}, {}], but is {}", images.height,
              images.width, images.channels, text_of(shape));
  }
  ATH_CHECK(n >= 1 && n <= limits.most, "images: must be 1 to {} in a request, but are {}", limits.most, n);
  return n;
}

void check_finite(std::string_view floats) {
  for (std::size_t at = 0; at < floats.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, floats.data() + at, sizeof value);
    ATH_CHECK(std::isfinite(value), "images: FP32 must be finite, but element {} is {}", at / sizeof(float),
              value);
  }
}

/// Equal parts of a tensor, one per image.
std::vector<std::string_view> parts(std::string_view tensor, std::int64_t n) {
  std::vector<std::string_view> all;
  const std::size_t size = tensor.size() / static_cast<std::size_t>(n);
  for (std::size_t at = 0; at < tensor.size(); at += size) all.push_back(tensor.substr(at, size));
  return all;
}

/// BYTES as binary data: each element after its length, a little-endian 32-bit number.
std::vector<std::string_view> elements(std::string_view tensor, std::int64_t n) {
  std::vector<std::string_view> all;
  for (std::int64_t i = 0; i < n; ++i) {
    std::size_t size = 0;
    ATH_CHECK(tensor.size() >= 4, "images: must have {} files, but has {}", n, i);
    for (int byte = 3; byte >= 0; --byte) size = size << 8 | static_cast<unsigned char>(tensor[byte]);
    tensor.remove_prefix(4);
    ATH_CHECK(size <= tensor.size(), "images: file {} must have {} bytes, but {} are left", i, size,
              tensor.size());
    all.push_back(tensor.substr(0, size));
    tensor.remove_prefix(size);
  }
  ATH_CHECK(tensor.empty(), "images: must have {} files, but {} bytes are left", n, tensor.size());
  return all;
}

/// What the tensor is that JSON had.
void take_data(const Reader& reader, std::int64_t n, const ImageSpec& spec, InferenceRequest& request) {
  auto data = std::make_shared<std::string>();
  if (request.kind == ImageKind::file) {
    ATH_CHECK(std::ssize(reader.files) == n && reader.numbers.empty(),
              "images: data must have {} files in base64, but has {} texts and {} numbers", n,
              reader.files.size(), reader.numbers.size());
    for (const std::string& file : reader.files) *data += file;
    std::string_view rest = *data;
    for (const std::string& file : reader.files) {
      request.images.push_back(rest.substr(0, file.size()));
      rest.remove_prefix(file.size());
    }
  } else {
    const std::int64_t wanted = n * spec.bytes();
    ATH_CHECK(std::ssize(reader.numbers) == wanted && reader.files.empty(),
              "images: data must have {} numbers, but has {} numbers and {} texts", wanted,
              reader.numbers.size(), reader.files.size());
    if (request.kind == ImageKind::bytes) {
      ATH_CHECK(reader.all_bytes, "images: UINT8 must be whole numbers in [0, 255]");
      for (const float value : reader.numbers) data->push_back(static_cast<char>(static_cast<int>(value)));
    } else {
      data->assign(reinterpret_cast<const char*>(reader.numbers.data()), 4 * reader.numbers.size());
      check_finite(*data);
    }
    request.images = parts(*data, n);
  }
  request.data = std::move(data);
}

void take_binary(std::string_view tensor, std::int64_t n, const ImageSpec& spec, InferenceRequest& request) {
  if (request.kind == ImageKind::file) {
    request.images = elements(tensor, n);
    return;
  }
  const std::int64_t wanted = n * spec.bytes() * (request.kind == ImageKind::floats ? 4 : 1);
  ATH_CHECK(std::ssize(tensor) == wanted, "images: must have {} bytes, but has {}", wanted, tensor.size());
  if (request.kind == ImageKind::floats) check_finite(tensor);
  request.images = parts(tensor, n);
}

void take_input(const Reader& reader, std::string_view tensors, const InferenceLimits& limits,
                InferenceRequest& request) {
  const Value* const inputs = member(reader.root, "inputs");
  ATH_CHECK(inputs && inputs->is_array() && inputs->size() == 1 && (*inputs)[0].is_object(),
            "inputs: must be a list of one tensor");
  const Value& input = (*inputs)[0];
  const std::string name = text_field(input, "name");
  ATH_CHECK(name == kInput, "inputs: the model takes '{}', but got {}", kInput, in_quotes(name));
  request.kind = kind_of(text_field(input, "datatype"));
  const std::int64_t n = images_of(input, request.kind, limits);
  const auto size = whole_field(object_field(input, "parameters"), "binary_data_size");
  ATH_CHECK(size.has_value() != reader.has_data,
            "images: must have either data or binary_data_size, but has {}", size ? "both" : "neither");
  ATH_CHECK(!member(input, "data"), "images: data must be a list");
  ATH_CHECK(size.value_or(0) == std::ssize(tensors),
            "images: binary_data_size must be {}, the bytes after the JSON, but is {}", tensors.size(),
            size.value_or(0));
  if (size) {
    take_binary(tensors, n, limits.images, request);
  } else {
    take_data(reader, n, limits.images, request);
  }
}

void take_outputs(const Value& root, const InferenceLimits& limits, InferenceRequest& request) {
  const bool binary = flag_field(object_field(root, "parameters"), "binary_data_output", false);
  const std::span<const OutputKind> kinds = outputs_of(limits.task);
  const Value* const wanted = member(root, "outputs");
  ATH_CHECK(!wanted || wanted->is_array(), "outputs: must be a list, but is {}", wanted->type_name());
  if (!wanted || wanted->empty()) {
    for (const OutputKind& kind : kinds) request.outputs.push_back({&kind, binary});
    return;
  }
  for (const Value& one : *wanted) {
    ATH_CHECK(one.is_object(), "outputs: must be objects, but one is {}", one.type_name());
    const std::string name = text_field(one, "name");
    const auto kind =
        std::find_if(kinds.begin(), kinds.end(), [&](const OutputKind& known) { return name == known.name; });
    if (kind == kinds.end()) {
      std::vector<std::string> names;
      for (const OutputKind& known : kinds) names.emplace_back(known.name);
      detail::fail<>("outputs: the model has {}, but not {}", fmt::join(names, ", "), in_quotes(name));
    }
    for (const WantedOutput& before : request.outputs)
      ATH_CHECK(before.kind != &*kind, "outputs: has {} twice", kind->name);
    const Value& parameters = object_field(one, "parameters");
    WantedOutput output{&*kind, flag_field(parameters, "binary_data", binary)};
    if (const auto count = whole_field(parameters, "classification")) {
      ATH_CHECK(kind->per_class && std::string_view(kind->datatype) == "FP32",
                "classification: is for outputs of a number per class, but {} has none", kind->name);
      ATH_CHECK(*count >= 1 && *count <= limits.images.classes,
                "classification: must be in [1, {}], but got {}", limits.images.classes, *count);
      output.classification = *count;
    }
    request.outputs.push_back(output);
  }
}

}  // namespace

std::span<const OutputKind> outputs_of(LabelKind task) {
  const std::span<const OutputKind> all = kOutputs;
  switch (task) {
    case LabelKind::classes: return all.subspan(0, 3);
    case LabelKind::multilabel: return all.subspan(3, 3);
    case LabelKind::values: break;
  }
  return all.subspan(6);
}

InferenceRequest parse_inference_request(std::string_view body, std::optional<std::uint64_t> json_bytes,
                                         const InferenceLimits& limits) {
  ATH_CHECK(!json_bytes || *json_bytes <= body.size(),
            "Inference-Header-Content-Length: must be at most {}, the bytes of the body, but is {}",
            body.size(), json_bytes.value_or(0));
  const std::string_view json = body.substr(0, json_bytes.value_or(body.size()));
  Reader reader(limits);
  Value::sax_parse(json.begin(), json.end(), &reader);
  const Value& root = reader.root;
  ATH_CHECK(root.is_object(), "the request must be an object, but is {}", root.type_name());
  InferenceRequest request;
  if (member(root, "id")) request.id = text_field(root, "id");
  const auto timeout = whole_field(object_field(root, "parameters"), "timeout");
  if (timeout.value_or(0) > 0) request.timeout = std::chrono::microseconds(*timeout);
  take_outputs(root, limits, request);
  take_input(reader, body.substr(json.size()), limits, request);
  return request;
}

}  // namespace athanor::serve
