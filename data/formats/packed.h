#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor {

class PooledFile;
class RegularFile;

namespace packed {
struct Entry;
struct Header;
}  // namespace packed

/// How a packed file is read.
enum class PackedAccess : std::uint8_t {
  automatic,  ///< map raw images; read encoded ones, and all on remote or user-space file systems (NFS, FUSE)
  map,        ///< mapped memory, if the file system has it: samples are views
  read,       ///< pread into the caller's scratch
};

struct PackedOptions {
  bool check = true;  ///< checks a sample's CRC on each fetch
  PackedAccess access = PackedAccess::automatic;
};

/// A part of a packed file that differs from what was written.
struct Damage {
  std::int64_t offset = 0, length = 0;  ///< affected bytes of the file
  std::int64_t sample = -1;             ///< the sample with these bytes, or -1
  std::string what;                     ///< "sample 7 (12,345 bytes): its CRC must be ..., but is ..."
};

/// A packed file (.athp): samples of any codec, 64-byte aligned, each with a CRC;
/// docs/reference/packed_file.md specifies the bytes. One instance serves any number of threads. Header,
/// index and footer are checked and held in memory, so opening a damaged file throws IoError naming the
/// offset.
///
/// If a mapped file is shortened, fetch() detects it by the file's size and throws IoError. Truncation
/// between that check and the last use of the bytes ends the process by SIGBUS, as with any mapping;
/// PackedAccess::read avoids this. PackedWriter replaces files and never writes into one that may be mapped.
class PackedStore final : public Dataset {
 public:
  explicit PackedStore(const std::filesystem::path& path, const PackedOptions& options = {});
  ~PackedStore() override;

  std::int64_t size() const override;
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<FieldSpec> fields() const override { return fields_.empty() ? Dataset::fields() : fields_; }
  /// Throws IoError naming sample and offset if its CRC is wrong (unless options.check is off), or the file
  /// was shortened.
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::uint64_t sample_id(std::int64_t index) const override;  ///< from its CRC
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override;
  std::int64_t label(std::int64_t index) const override;
  std::string where(std::int64_t index) const override;
  void will_need(std::int64_t first, std::int64_t count) const override;

  /// Whether the file begins like a packed file.
  static bool recognises(const std::filesystem::path& path);

  /// 32 hex digits that depend only on the content: equal for the same samples in the same order with the
  /// same options. Not secure against forgery: it covers samples by their CRCs.
  std::string content_id() const;
  /// Bytes of the file, of its data pages, and of one page.
  std::int64_t file_bytes() const;
  std::int64_t data_bytes() const;
  std::int64_t page_bytes() const;
  /// Length of sample `index` in bytes, and its offset. Reads nothing.
  std::int64_t length(std::int64_t index) const;
  std::int64_t offset(std::int64_t index) const;
  bool mapped() const { return !map_.empty(); }

  /// Reads the whole file with `threads` threads and checks every CRC: samples, pages including padding, and
  /// the content id. Returns damages ordered by offset. `progress` receives the bytes done, from any thread,
  /// one call at a time; if it returns false, verify() returns early.
  std::vector<Damage> verify(int threads = 1, const std::function<bool(std::int64_t)>& progress = {}) const;

 private:
  struct Verifier;

  packed::Entry entry(std::int64_t index) const;
  std::shared_ptr<const RegularFile> open_file() const;
  void read_head();
  void read_tail();
  void check_entries();
  void map_data(PackedAccess access);
  void compare(const char* what, std::uint64_t offset, std::uint64_t bytes, std::uint32_t stored,
               std::uint32_t crc) const;
  /// Bytes [from, to) of the file, which must be in memory.
  std::span<const std::byte> tail(std::uint64_t from, std::uint64_t to) const;
  /// Throws if the file was shortened.
  void check_length() const;
  void read_at(std::uint64_t offset, std::span<std::byte> to, const char* what) const;
  [[noreturn]] void fail(std::uint64_t offset, const std::string& message) const;

  std::filesystem::path path_;
  bool check_;
  std::unique_ptr<PooledFile> file_;
  std::unique_ptr<packed::Header> header_;
  ImageSpec spec_;
  std::vector<std::byte> tail_;  ///< index, names and page CRCs, as in the file
  std::vector<std::string> class_names_;
  std::vector<FieldSpec> fields_;   ///< in version 2
  std::size_t more_ = 0;            ///< number of them besides image and label
  std::span<const std::byte> map_;  ///< header and data, or empty
};

}  // namespace athanor
