#include "trainer/checkpoint.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>

#include <unistd.h>
#include <zlib.h>

#include "tensor/error.h"
#include "tensor/safetensors.h"

namespace athanor {
namespace {

constexpr std::int64_t kSchema = 1;  // of the entries' encoding, not of what a run saves
constexpr char kFormat[] = "athanor.checkpoint";
constexpr std::uint64_t kTensorKind = 0;  // of StateDict::Value

/// CRC-32 of what is given to it, each piece with its length, so that no two lists of pieces are one stream.
class Checksum {
 public:
  void bytes(std::span<const std::byte> data) {
    number(data.size());
    raw(data);
  }
  void text(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  void number(std::uint64_t value) { raw(std::as_bytes(std::span(&value, 1))); }
  /// As bytes() of so many that have this CRC-32.
  void bytes_with(uLong crc, std::uint64_t size) {
    number(size);
    crc_ = crc32_combine(crc_, crc, static_cast<z_off_t>(size));
  }
  std::string str() const { return fmt::format("crc32:{:08x}", crc_); }

 private:
  void raw(std::span<const std::byte> data) {
    if (data.empty()) return;  // zlib starts anew where it gets a null pointer
    crc_ = crc32_z(crc_, reinterpret_cast<const Bytef*>(data.data()), data.size());
  }

  uLong crc_ = crc32_z(0, nullptr, 0);
};

/// CRC-32 of the bytes of a tensor, as long as it is known.
struct TensorSum {
  uLong crc = crc32_z(0, nullptr, 0);
  std::uint64_t bytes = 0;
};
using TensorSums = std::map<std::string, TensorSum>;

// Tensors are dense and on the host, or their sums in `sums`.
std::string checksum_of(const StateDict& state, const TensorSums* sums = nullptr) {
  Checksum sum;
  sum.number(kSchema);
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
      if (sums) {
        const TensorSum& known = sums->at(entry.name);
        sum.bytes_with(known.crc, known.bytes);
      } else {
        sum.bytes({tensor->raw_data(), tensor->bytes()});
      }
    } else if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      sum.number(static_cast<std::uint64_t>(*integer));
    } else if (const auto* real = std::get_if<double>(&entry.value)) {
      // The file's text for a number holds every double, but only one NaN.
      sum.number(
          std::bit_cast<std::uint64_t>(std::isnan(*real) ? std::numeric_limits<double>::quiet_NaN() : *real));
    } else {
      sum.text(std::get<std::string>(entry.value));
    }
  }
  return sum.str();
}

safetensors::Metadata metadata_with(const std::string& checksum) {
  return {{"format", kFormat}, {"schema", fmt::to_string(kSchema)}, {"checksum", checksum}};
}

void check_schema(const std::filesystem::path& path, const safetensors::Metadata& metadata) {
  const auto value = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::string() : at->second;
  };
  const std::string text = value("schema");
  std::int64_t schema = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), schema);
  if (value("format") != kFormat || error != std::errc() || end != text.data() + text.size() || schema < 1) {
    detail::fail<IoError>(
        "checkpoint: {} must be a checkpoint of a run, but is a safetensors file of something else",
        path.string());
  }
  if (schema > kSchema) {
    detail::fail<IoError>(
        "checkpoint: {} must be of schema {} or older, but is of schema {}: a newer version wrote it",
        path.string(), kSchema, schema);
  }
}

}  // namespace

// The checksum is known when the last tensor is written, and then takes its place at the top.
void save_checkpoint(const std::filesystem::path& path, const StateDict& state,
                     const dist::ReadTensor& read) {
  TensorSums sums;
  const auto summed = [&](const StateDict::Entry& entry, const safetensors::Source::Sink& sink) {
    TensorSum& sum = sums[entry.name];
    read(entry, [&](std::span<const std::byte> bytes) {
      if (bytes.empty()) return;  // zlib starts anew where it gets a null pointer
      sum.crc = crc32_z(sum.crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
      sum.bytes += bytes.size();
      sink(bytes);
    });
  };
  safetensors::save(path, state, metadata_with(Checksum().str()),
                    {.read = summed, .metadata = [&] { return metadata_with(checksum_of(state, &sums)); }});
}

StateDict load_checkpoint(const std::filesystem::path& path) {
  safetensors::Metadata metadata;
  StateDict state;
  try {
    state = safetensors::load(path, &metadata);
  } catch (const IoError& error) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored) || ::access(path.c_str(), R_OK) != 0) throw;
    detail::fail<IoError>(
        "checkpoint: the file must be whole, but is truncated, damaged or no checkpoint; {}", error.what());
  }
  check_schema(path, metadata);
  const std::string said = metadata["checksum"], is = checksum_of(state);
  if (said != is) {
    detail::fail<IoError>("checkpoint: {} is damaged: its entries must have the checksum '{}', but have '{}'",
                          path.string(), said.substr(0, 40), is);
  }
  return state;
}

}  // namespace athanor
