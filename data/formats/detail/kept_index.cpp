#include "data/formats/detail/kept_index.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/detail/sample_id.h"
#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/import/cache.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"

// The bytes, little-endian: kMagic; the CRC-32C of all that follows; what the index is of; then the members
// of SampleIndex, lists and texts behind their lengths (u64).

namespace athanor::detail {
namespace {

namespace fs = std::filesystem;

// Another number wherever these bytes, or what they are computed from, change.
constexpr std::string_view kMagic = "athindx1";
constexpr std::size_t kHead = kMagic.size() + sizeof(std::uint32_t);

/// Takes numbers and texts from the front of bytes. After the end all are 0 and empty, and failed() says so.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T> T le() {
    if (rest_.size() < sizeof(T)) {
      fail();
      return T{};
    }
    const T value = load_le<T>(rest_);
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  /// The length of a list whose elements have at least `least` bytes each.
  std::size_t count(std::size_t least) {
    const auto count = le<std::uint64_t>();
    if (count > rest_.size() / least) fail();
    return failed_ ? 0 : static_cast<std::size_t>(count);
  }
  std::string text() {
    const std::size_t length = count(1);
    std::string value(text_of(rest_.first(length)));
    rest_ = rest_.subspan(length);
    return value;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return !failed_ && rest_.empty(); }

 private:
  void fail() {
    failed_ = true;
    rest_ = {};
  }

  std::span<const std::byte> rest_;
  bool failed_ = false;
};

void add_text(ByteWriter& out, std::string_view text) {
  out.le(std::uint64_t{text.size()}).add(text);
}

void add_texts(ByteWriter& out, const std::vector<std::string>& texts) {
  out.le(std::uint64_t{texts.size()});
  for (const std::string& text : texts) add_text(out, text);
}

std::vector<std::string> texts_of(ByteReader& in) {
  std::vector<std::string> texts(in.count(sizeof(std::uint64_t)));
  for (std::string& text : texts) text = in.text();
  return texts;
}

std::vector<std::byte> encoded(const std::string& of, const SampleIndex& index) {
  ByteWriter out;
  add_text(out, of);
  for (const std::int64_t side :
       {index.spec.height, index.spec.width, index.spec.channels, index.spec.classes})
    out.le(side);
  out.le(std::uint64_t{index.entries.size()});
  for (const IndexEntry& at : index.entries)
    out.le(at.offset).le(at.bytes).le(at.label).le(at.head).le(static_cast<std::uint8_t>(at.codec));
  out.le(std::uint64_t{index.crcs.size()});
  for (const std::uint32_t crc : index.crcs) out.le(crc);
  add_texts(out, index.class_names);
  out.le(std::uint64_t{index.unused.size()});
  for (const Unused& one : index.unused) {
    add_text(out, one.cause);
    out.le(one.count);
    add_texts(out, one.names);
  }
  ByteWriter file;
  file.add(kMagic).le(crc32c(out.bytes)).add(out.bytes);
  return std::move(file.bytes);
}

/// nullopt unless these are the bytes of an index of `of`, all of whose samples lie in a file of `size`
/// bytes.
std::optional<SampleIndex> decoded(std::span<const std::byte> file, const std::string& of,
                                   std::int64_t size) {
  if (file.size() < kHead || text_of(file.first(kMagic.size())) != kMagic ||
      load_le<std::uint32_t>(file.subspan(kMagic.size())) != crc32c(file.subspan(kHead)))
    return std::nullopt;
  ByteReader in(file.subspan(kHead));
  if (in.text() != of) return std::nullopt;
  SampleIndex index;
  for (std::int64_t* side :
       {&index.spec.height, &index.spec.width, &index.spec.channels, &index.spec.classes})
    *side = in.le<std::int64_t>();
  constexpr std::size_t kEntry = 3 * sizeof(std::int64_t) + sizeof(std::int16_t) + sizeof(std::uint8_t);
  index.entries.resize(in.count(kEntry));
  for (IndexEntry& at : index.entries) {
    at.offset = in.le<std::int64_t>();
    at.bytes = in.le<std::int64_t>();
    at.label = in.le<std::int64_t>();
    at.head = in.le<std::int16_t>();
    const auto codec = in.le<std::uint8_t>();
    at.codec = static_cast<Codec>(codec);
    const bool fits = at.offset >= 0 && at.offset <= size && at.bytes >= 0 && at.bytes <= size - at.offset &&
                      at.label >= -1 && at.label < kMaxClasses && at.head >= -1 && at.head <= at.bytes &&
                      codec <= static_cast<std::uint8_t>(Codec::webp);
    if (!fits) return std::nullopt;
  }
  index.crcs.resize(in.count(sizeof(std::uint32_t)));
  for (std::uint32_t& crc : index.crcs) crc = in.le<std::uint32_t>();
  index.class_names = texts_of(in);
  index.unused.resize(in.count(3 * sizeof(std::uint64_t)));
  for (Unused& one : index.unused) {
    one.cause = in.text();
    one.count = in.le<std::int64_t>();
    one.names = texts_of(in);
  }
  const bool whole = in.at_end() && !index.entries.empty() &&
                     (index.crcs.empty() || index.crcs.size() == index.entries.size());
  return whole ? std::optional(std::move(index)) : std::nullopt;
}

/// Where the index of a file lies, and what it is of. nullopt if none is kept.
struct Place {
  fs::path path;
  std::string of;
};
std::optional<Place> place_of(const FileBytes& file, std::string_view reader) {
  using namespace std::chrono;
  const auto now = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  constexpr std::int64_t kSettled = 2'000'000'000;
  if (file.in_memory() || file.size() < kLeastIndexed || now - file.modified_ns() < kSettled)
    return std::nullopt;
  std::error_code error;
  const fs::path source = fs::canonical(file.name(), error);
  if (error) return std::nullopt;
  try {
    const std::string name = fmt::format("{}\n{}", source.string(), reader);
    return Place{cache_folder("indexed") /
                     fmt::format("{:.40}-{:016x}.index", source.stem().string(), kernels::fnv1a(name)),
                 fmt::format("{}\n{} bytes, {} ns", name, file.size(), file.modified_ns())};
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace

SampleIndex kept_index(const FileBytes& file, std::string_view reader,
                       const std::function<SampleIndex()>& build) {
  const std::optional<Place> place = place_of(file, reader);
  if (!place) return build();
  std::error_code error;
  try {
    if (fs::exists(place->path, error)) {
      const FileBytes kept(place->path, "index", "remove it");
      if (auto index = decoded(kept.all(), place->of, file.size())) return std::move(*index);
    }
  } catch (const IoError&) {  // made again
  }
  SampleIndex index = build();
  if (!index.whole) return index;
  if (is_looked_into(std::ssize(index.entries))) {
    std::vector<std::byte> scratch;
    for (const IndexEntry& at : index.entries)
      index.crcs.push_back(crc_of_start(file, at, std::ssize(index.entries), scratch));
  }
  try {
    fs::create_directories(place->path.parent_path(), error);
    write_atomically(place->path, encoded(place->of, index));
  } catch (const IoError&) {  // a folder or a disk that takes no more
  }
  return index;
}

}  // namespace athanor::detail
