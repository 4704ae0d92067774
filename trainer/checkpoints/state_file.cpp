#include "trainer/checkpoints/state_file.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include <isa-l/crc.h>
#include <unistd.h>
#include <zlib.h>

#include "nn/torch/torch_file.h"
#include "tensor/base/error.h"
#include "tensor/io/regular_file.h"

namespace athanor {
namespace {

// Of the encoding, not of a run's content: 2 has texts in its metadata; 3 has weights that only their own
// kind of network reads, which a version that does not know it refuses.
constexpr std::int64_t kSchema = 3;
constexpr std::uint64_t kTensorKind = 0;  // of StateDict::Value

constexpr uLong kNothing = 0;  // the CRC-32 of no bytes

uLong crc32_of(uLong before, std::span<const std::byte> data) {
  if (data.empty()) return before;  // zlib restarts if it gets a null pointer
  // Equal to zlib's sum, but several times as fast.
  return crc32_gzip_refl(static_cast<std::uint32_t>(before),
                         reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

/// Running sum over the bytes of a tensor.
struct TensorSum {
  uLong crc = kNothing;
  std::uint64_t bytes = 0;

  void add(std::span<const std::byte> data) {
    crc = crc32_of(crc, data);
    bytes += data.size();
  }
};

/// CRC-32 of a sequence of pieces, each with its length, so that different sequences give different streams.
class Checksum {
 public:
  void text(std::string_view text) {
    number(text.size());
    raw(std::as_bytes(std::span(text)));
  }
  void number(std::uint64_t value) { raw(std::as_bytes(std::span(&value, 1))); }
  /// Adds a tensor by the sum of its bytes.
  void tensor(const TensorSum& sum) {
    number(sum.bytes);
    crc_ = crc32_combine(crc_, sum.crc, static_cast<z_off_t>(sum.bytes));
  }
  std::string str() const { return fmt::format("crc32:{:08x}", crc_); }

 private:
  void raw(std::span<const std::byte> data) { crc_ = crc32_of(crc_, data); }

  uLong crc_ = kNothing;
};

std::int64_t schema_with(const safetensors::Metadata& about) {
  return about.empty() ? 1 : about.contains(kQuantized) ? kSchema : 2;
}

std::string checksum_of(const StateDict& state, const std::map<std::string, TensorSum>& tensors,
                        const safetensors::Metadata& about) {
  Checksum sum;
  sum.number(static_cast<std::uint64_t>(schema_with(about)));
  for (const auto& [key, value] : about) {
    sum.text(key);
    sum.text(value);
  }
  for (const StateDict::Entry& entry : state) {
    const auto* tensor = std::get_if<Tensor>(&entry.value);
    const auto* part = std::get_if<ShardedTensor>(&entry.value);
    sum.text(entry.name);
    sum.number(part ? kTensorKind : entry.value.index());
    if (tensor || part) {
      const Shape& shape = tensor ? tensor->shape() : part->shape;
      sum.text(name_of(tensor ? tensor->dtype() : part->dtype));
      sum.number(static_cast<std::uint64_t>(shape.rank()));
      for (const std::int64_t size : shape) sum.number(static_cast<std::uint64_t>(size));
      sum.tensor(tensors.at(entry.name));
    } else if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      sum.number(static_cast<std::uint64_t>(*integer));
    } else if (const auto* real = std::get_if<double>(&entry.value)) {
      // The file's text form of a number is exact for every double, but has only one NaN.
      sum.number(
          std::bit_cast<std::uint64_t>(std::isnan(*real) ? std::numeric_limits<double>::quiet_NaN() : *real));
    } else {
      sum.text(std::get<std::string>(entry.value));
    }
  }
  return sum.str();
}

StateFile other_than(StateFile kind) {
  return kind == StateFile::checkpoint ? StateFile::model : StateFile::checkpoint;
}
/// The kind's name in messages.
const char* name_of(StateFile kind) {
  return kind == StateFile::checkpoint ? "checkpoint" : "model";
}

safetensors::Metadata metadata_with(StateFile kind, const std::string& checksum,
                                    const safetensors::Metadata& about) {
  safetensors::Metadata metadata = about;
  metadata["format"] = format_of(kind);
  metadata["schema"] = fmt::to_string(schema_with(about));
  metadata["checksum"] = checksum;
  return metadata;
}

/// The texts of save_state_file(), out of all that a file of this schema has.
safetensors::Metadata about_in(const safetensors::Metadata& metadata) {
  safetensors::Metadata about = metadata;
  for (const char* own : {"format", "schema", "checksum"}) about.erase(own);
  return metadata.at("schema") == "1" ? safetensors::Metadata() : about;
}

/// How to make a model of what `path` holds instead; empty if that is unknown.
std::string how_to_convert(const std::filesystem::path& path, StateFile kind, bool is_checkpoint) {
  if (kind != StateFile::model) return {};
  return fmt::format("; make a model of it with: athanor convert {} model.safetensors{}", path.string(),
                     is_checkpoint ? "" : " --model NAME");
}

void check_schema(const std::filesystem::path& path, StateFile kind, const safetensors::Metadata& metadata) {
  const auto value = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::string() : at->second;
  };
  const std::string text = value("schema");
  std::int64_t schema = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), schema);
  if (value("format") != format_of(kind) || error != std::errc() || end != text.data() + text.size() ||
      schema < 1) {
    const bool other = value("format") == format_of(other_than(kind));
    detail::fail<IoError>(
        "{}: {} must be a {} of a run, but is {}{}", name_of(kind), path.string(), name_of(kind),
        other ? fmt::format("a {}", name_of(other_than(kind))) : "some other safetensors file",
        how_to_convert(path, kind, other));
  }
  if (schema > kSchema) {
    detail::fail<IoError>("{}: {} must have schema {} or older, but has schema {}: a newer version wrote it",
                          name_of(kind), path.string(), kSchema, schema);
  }
}

}  // namespace

// The checksum is known after the last tensor; then it is written to the header.
void save_state_file(const std::filesystem::path& path, StateFile kind, const StateDict& state,
                     const dist::ReadTensor& read, const safetensors::Metadata& about) {
  std::map<std::string, TensorSum> sums;
  const auto summed = [&](const StateDict::Entry& entry, const safetensors::Source::Sink& sink) {
    TensorSum& sum = sums[entry.name];
    read(entry, [&](std::span<const std::byte> bytes) {
      sum.add(bytes);
      sink(bytes);
    });
  };
  const auto metadata = [&] { return metadata_with(kind, checksum_of(state, sums, about), about); };
  safetensors::save(path, state, metadata_with(kind, Checksum().str(), about),
                    {.read = summed, .metadata = metadata});
}

StateDict load_state_file(const std::filesystem::path& path, StateFile kind, Verify verify,
                          safetensors::Metadata* about) {
  safetensors::Metadata metadata;
  StateDict state;
  try {
    state = safetensors::load(path, &metadata);
  } catch (const IoError& error) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored) || ::access(path.c_str(), R_OK) != 0) throw;
    const bool is_torch = torch_file::is_torch_file(path);
    if (const std::string is = is_torch ? "a file of PyTorch" : RegularFile(path).kind(); !is.empty()) {
      detail::fail<IoError>("{0}: {1} must be a {0} of a run, but is {2}{3}", name_of(kind), path.string(),
                            is, is_torch ? how_to_convert(path, kind, false) : "");
    }
    detail::fail<IoError>(
        "{0}: the file must be a valid {0}, but is truncated, damaged or of another kind; {1}", name_of(kind),
        error.what());
  }
  check_schema(path, kind, metadata);
  const safetensors::Metadata texts = about_in(metadata);
  if (about) *about = texts;
  if (verify == Verify::header) return state;
  std::map<std::string, TensorSum> sums;
  for (const StateDict::Entry& entry : state) {
    if (const auto* tensor = std::get_if<Tensor>(&entry.value))
      sums[entry.name].add({tensor->raw_data(), tensor->bytes()});
  }
  const std::string said = metadata["checksum"], is = checksum_of(state, sums, texts);
  if (said != is) {
    detail::fail<IoError>("{}: {} is damaged: its entries must have the checksum '{}', but have '{}'",
                          name_of(kind), path.string(), said.substr(0, 40), is);
  }
  return state;
}

}  // namespace athanor
