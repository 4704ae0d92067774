#include "tensor/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "tensor/base/printable.h"
#include "tensor/detail/host_copy.h"
#include "tensor/io/atomic_file.h"
#include "tensor/io/loaded_file.h"
#include "tensor/io/safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

namespace athanor::safetensors {
namespace {

constexpr std::string_view kOwnKeys = "athanor:";

Tensor make_tensor(const Ref<LoadedFile>& file, const Header& header, const TensorInfo& info,
                   const std::string& path) {
  const std::span<std::byte> bytes =
      file->bytes().subspan(header.bytes + info.begin, static_cast<std::size_t>(info.end - info.begin));
  if (info.dtype == DType::boolean) {
    const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (bad != bytes.end())
      detail::fail<IoError>(
          "safetensors: {}: at byte {}: expected a bool of 0 or 1 in tensor '{}', but got {}", path,
          bad - file->bytes().begin(), printable(info.name), static_cast<int>(*bad));
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(info.dtype) != 0)
    return Tensor::from_bytes(bytes, info.shape, {info.dtype, kCpu});
  return Tensor::wrap(make_ref<Storage>(bytes.data(), bytes.size(), file), 0, info.shape,
                      contiguous_strides(info.shape), info.dtype);
}

// Entries that are no tensors ------------------------------------------------------------------------------

// A metadata item "athanor:POSITION:KIND:NAME" -> value, with KIND i64, f64 or text.
struct Scalar {
  std::size_t position = 0;
  std::string name;
  StateDict::Value value;
};

template <class T> bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_scalar(std::string_view key, const std::string& text, Scalar& scalar) {
  key.remove_prefix(kOwnKeys.size());
  const std::size_t first = key.find(':');
  const std::size_t second = first == key.npos ? first : key.find(':', first + 1);
  if (second == key.npos || !parse_whole(key.substr(0, first), scalar.position)) return false;
  const std::string_view kind = key.substr(first + 1, second - first - 1);
  scalar.name = key.substr(second + 1);
  std::int64_t integer = 0;
  double real = 0;
  if (kind == "i64" && parse_whole(text, integer)) {
    scalar.value = integer;
  } else if (kind == "f64" && parse_whole(text, real)) {
    scalar.value = real;
  } else if (kind == "text") {
    scalar.value = text;
  } else {
    return false;
  }
  return !scalar.name.empty();
}

// Moves them out of the metadata, ordered by position.
std::vector<Scalar> take_scalars(Metadata& metadata, const std::string& path) {
  std::vector<Scalar> scalars;
  for (auto at = metadata.lower_bound(std::string(kOwnKeys));
       at != metadata.end() && at->first.starts_with(kOwnKeys); at = metadata.erase(at)) {
    if (!parse_scalar(at->first, at->second, scalars.emplace_back()))
      detail::fail<IoError>(
          "safetensors: {}: at byte {}: expected metadata 'athanor:POSITION:KIND:NAME' with a "
          "value of that kind, but got '{}': '{}'",
          path, kLengthBytes, printable(at->first.substr(0, 80)), printable(at->second.substr(0, 80)));
  }
  std::stable_sort(scalars.begin(), scalars.end(),
                   [](const Scalar& a, const Scalar& b) { return a.position < b.position; });
  return scalars;
}

std::pair<std::string, std::string> metadata_item(std::size_t position, const StateDict::Entry& entry) {
  const auto item = [&](std::string_view kind, std::string text) {
    return std::pair(fmt::format("{}{}:{}:{}", kOwnKeys, position, kind, entry.name), std::move(text));
  };
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    return item("i64", fmt::to_string(*integer));
  if (const auto* real = std::get_if<double>(&entry.value)) return item("f64", fmt::to_string(*real));
  return item("text", std::get<std::string>(entry.value));
}

// Writing --------------------------------------------------------------------------------------------------

struct Placed {
  const StateDict::Entry* entry = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  std::uint64_t begin = 0, bytes = 0;
};

// Tensors in file order: widest elements first, so that each is aligned.
std::vector<Placed> place_tensors(const StateDict& entries) {
  std::vector<Placed> placed;
  for (const StateDict::Entry& entry : entries) {
    if (const auto* tensor = std::get_if<Tensor>(&entry.value))
      placed.push_back({&entry, tensor->shape(), tensor->dtype(), 0, tensor->bytes()});
    if (const auto* part = std::get_if<ShardedTensor>(&entry.value)) {
      const auto bytes = static_cast<std::uint64_t>(part->shape.numel()) * size_of(part->dtype);
      placed.push_back({&entry, part->shape, part->dtype, 0, bytes});
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return size_of(a.dtype) > size_of(b.dtype); });
  std::uint64_t next = 0;
  for (Placed& place : placed) next = (place.begin = next) + place.bytes;
  return placed;
}

std::string header_text(const StateDict& entries, const std::vector<Placed>& placed,
                        const Metadata& metadata) {
  std::map<const StateDict::Entry*, const Placed*> places;
  for (const Placed& place : placed) places.emplace(place.entry, &place);
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  std::map<std::string, std::string> notes = metadata;
  std::size_t position = 0;
  for (const StateDict::Entry& entry : entries) {
    if (const auto at = places.find(&entry); at != places.end()) {
      ATH_CHECK(entry.name != "__metadata__", "safetensors: no entry may be named '__metadata__'");
      const Placed& place = *at->second;
      nlohmann::ordered_json info;
      info["dtype"] = format_name_of(place.dtype);
      info["shape"] = std::vector<std::int64_t>(place.shape.begin(), place.shape.end());
      info["data_offsets"] = {place.begin, place.begin + place.bytes};
      tensors[entry.name] = std::move(info);
    } else {
      notes.insert(metadata_item(position, entry));
    }
    ++position;
  }
  try {
    std::string text = "{";
    if (!notes.empty())
      text += "\"__metadata__\":" + nlohmann::json(notes).dump() + (tensors.empty() ? "" : ",");
    text += tensors.dump().substr(1);
    text.append((8 - text.size() % 8) % 8, ' ');  // tensor bytes begin aligned
    return text;
  } catch (const nlohmann::json::type_error& error) {
    detail::fail<>("safetensors: names, strings and metadata must be UTF-8, but got {}", error.what());
  }
}

}  // namespace

StateDict load(const std::filesystem::path& path, Metadata* metadata) {
  const auto file = make_ref<LoadedFile>(path, "safetensors");
  file->read_to(kLengthBytes + kMaxHeaderBytes);  // a large file of another kind is refused by its beginning
  Header header = read_header(file->bytes(), path.string());
  file->read_to(file->bytes().size());
  const std::vector<Scalar> scalars = take_scalars(header.metadata, path.string());

  StateDict entries;
  auto scalar = scalars.begin();
  auto info = header.tensors.begin();
  const std::size_t total = scalars.size() + header.tensors.size();
  for (std::size_t position = 0; position < total; ++position) {
    const bool takes_scalar = scalar != scalars.end() && scalar->position == position;
    if (!takes_scalar && info == header.tensors.end()) break;
    const std::string& name = takes_scalar ? scalar->name : info->name;
    if (name.empty() || entries.contains(name))
      detail::fail<IoError>(
          "safetensors: {}: at byte {}: expected names that are unique and not empty, but got '{}'",
          path.string(), takes_scalar ? kLengthBytes : info->at, printable(name.substr(0, 80)));
    if (takes_scalar) {
      entries.set(name, scalar->value);
      ++scalar;
    } else {
      entries.set(name, make_tensor(file, header, *info, path.string()));
      ++info;
    }
  }
  if (entries.size() != total)
    detail::fail<IoError>(
        "safetensors: {}: at byte {}: expected each position in 'athanor:POSITION:KIND:NAME' "
        "once and below {}, but got {}",
        path.string(), kLengthBytes, total, scalar->position);
  if (metadata) *metadata = std::move(header.metadata);
  return entries;
}

namespace {

void check_keys(const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    ATH_CHECK(!key.starts_with(kOwnKeys), "safetensors: metadata keys must not begin with '{}', but got '{}'",
              kOwnKeys, key);
  }
}

// A tensor that is wholly on this rank.
void read_whole(const StateDict::Entry& entry, const Source::Sink& sink) {
  const auto* whole = std::get_if<Tensor>(&entry.value);
  ATH_CHECK(whole, "safetensors: '{}' must be a whole tensor, but is {}", entry.name, kind_of(entry.value));
  Tensor tensor = whole->to(kCpu);
  if (!tensor.is_contiguous()) tensor = detail::dense_copy(tensor);
  sink({tensor.raw_data(), tensor.bytes()});
}

}  // namespace

void save(const std::filesystem::path& path, const StateDict& entries, const Metadata& metadata) {
  save(path, entries, metadata, {.read = read_whole, .metadata = {}});
}

void save(const std::filesystem::path& path, const StateDict& entries, const Metadata& metadata,
          const Source& source) {
  check_keys(metadata);
  const std::vector<Placed> placed = place_tensors(entries);
  const std::string header = header_text(entries, placed, metadata);
  ATH_CHECK(header.size() <= kMaxHeaderBytes,
            "safetensors: the header must take at most {} bytes, but takes {}", kMaxHeaderBytes,
            header.size());

  AtomicFile file(path);
  const std::uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const Placed& place : placed) {
    std::uint64_t written = 0;
    source.read(*place.entry, [&](std::span<const std::byte> bytes) {
      file.write(bytes);
      written += bytes.size();
    });
    ATH_CHECK(written == place.bytes, "safetensors: '{}' must have {} bytes, but {} were written",
              place.entry->name, place.bytes, written);
  }
  if (source.metadata) {
    const Metadata last = source.metadata();
    check_keys(last);
    const std::string text = header_text(entries, placed, last);
    ATH_CHECK(
        text.size() == header.size(),
        "safetensors: the size of the metadata must not change during a save, but is {} bytes instead of {}",
        text.size(), header.size());
    file.write_at(kLengthBytes, std::as_bytes(std::span(text)));
  }
  file.commit();
}

}  // namespace athanor::safetensors
