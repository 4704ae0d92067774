#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "tensor/regular_file.h"

namespace athanor {

namespace packed {
struct Entry;
struct Header;
}  // namespace packed

/// How a packed file is read.
enum class PackedAccess : std::uint8_t {
  automatic,  ///< map; read on file systems that are not this machine's own (NFS, SMB, FUSE, Lustre, ...)
  map,        ///< mapped memory: samples lie in place
  read,       ///< pread into the caller's scratch
};

struct PackedOptions {
  bool check = true;  ///< compares a sample with its CRC whenever it is fetched
  PackedAccess access = PackedAccess::automatic;
};

/// Something in a packed file that is not what was written.
struct Damage {
  std::int64_t offset = 0, length = 0;  ///< bytes of the file it lies in
  std::int64_t sample = -1;             ///< whose bytes these are, or -1
  std::string what;                     ///< "sample 7 (12,345 bytes): its CRC must be ..., but is ..."
};

/// A packed file (.athp): samples of any codec, 64-byte aligned, with a CRC of each; docs/packed_file.md
/// gives the bytes. Opened once, whatever the number of threads; header, index and footer are checked and
/// held in memory, so that opening a damaged file throws IoError naming the offset.
///
/// A mapped file that somebody shortens: every fetch() asks for the file's size first and throws IoError. A
/// file cut between that and the last use of the bytes ends the process by SIGBUS, as with any mapping;
/// PackedAccess::read cannot.
/// PackedWriter replaces files, and never writes into one that may be mapped.
class PackedStore final : public Dataset {
 public:
  explicit PackedStore(const std::filesystem::path& path, const PackedOptions& options = {});
  ~PackedStore() override;

  std::int64_t size() const override;
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<FieldSpec> fields() const override { return fields_.empty() ? Dataset::fields() : fields_; }
  /// Throws IoError naming sample and offset where its CRC is wrong (unless options.check is off), or the
  /// file has become shorter.
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::string where(std::int64_t index) const override;
  void will_need(std::int64_t first, std::int64_t count) const override;

  /// True where the file begins as a packed one does.
  static bool recognises(const std::filesystem::path& path);

  /// 32 hex digits that depend on what is in the file alone: equal for the same samples in the same order
  /// with the same options. Not a defence against forgery: of the samples it covers their CRCs.
  std::string content_id() const;
  /// Bytes of the file, of its data pages, and of one page.
  std::int64_t file_bytes() const;
  std::int64_t data_bytes() const;
  std::int64_t page_bytes() const;
  /// Bytes of sample `index`, and where it starts. Reads nothing.
  std::int64_t length(std::int64_t index) const;
  std::int64_t offset(std::int64_t index) const;
  bool mapped() const { return !map_.empty(); }

  /// Reads the whole file with `threads` threads and compares everything with its CRC: samples, pages with
  /// the padding between samples, the content id. What is damaged, by offset. `progress` gets bytes done,
  /// from any thread, one at a time; where it returns false, verify() returns what it has found.
  std::vector<Damage> verify(int threads = 1, const std::function<bool(std::int64_t)>& progress = {}) const;

 private:
  struct Verifier;

  packed::Entry entry(std::int64_t index) const;
  void read_head();
  void read_tail();
  void check_entries();
  void map_data(PackedAccess access);
  void compare(const char* what, std::uint64_t offset, std::uint64_t bytes, std::uint32_t stored,
               std::uint32_t crc) const;
  /// Bytes [from, to) of the file, which are among those in memory.
  std::span<const std::byte> tail(std::uint64_t from, std::uint64_t to) const;
  /// Throws where the file has become shorter than it was.
  void check_length() const;
  void read_at(std::uint64_t offset, std::span<std::byte> to, const char* what) const;
  [[noreturn]] void fail(std::uint64_t offset, const std::string& message) const;

  std::filesystem::path path_;
  bool check_;
  RegularFile file_;
  std::unique_ptr<packed::Header> header_;
  ImageSpec spec_;
  std::vector<std::byte> tail_;  ///< index, names and page CRCs, as they lie in the file
  std::vector<std::string> class_names_;
  std::vector<FieldSpec> fields_;   ///< of version 2
  std::size_t more_ = 0;            ///< of them, those beside image and label
  std::span<const std::byte> map_;  ///< header and data, or nothing
};

}  // namespace athanor
