#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

struct PackedWriterOptions {
  std::int64_t page_bytes = std::int64_t{8} << 20;  ///< a power of two, 4 KiB to 1 GiB
  /// Threads beside the caller's that compute CRCs and write; 0: the caller does it all. The bytes of the
  /// file do not depend on it.
  int threads = 0;
  /// How many classes there are; 0: as many as there are names, or the largest label + 1.
  std::int64_t classes = 0;
  std::vector<std::string> class_names = {};  ///< none, or one for each class
  /// Of samples with more than image and label: Dataset::fields(). The file then is of version 2.
  std::vector<FieldSpec> fields = {};
};

/// Writes a packed file (data/formats/packed.h) that appears under its name when it is whole and on the disk.
/// Its bytes are a function of the samples, their order, page_bytes, classes, class_names and fields alone.
/// Holds the index (40 bytes a sample) and threads + 2 pages in memory. Throws ArgumentError on `fields` that
/// check_field_names() has something against. add() throws it where a sample has other fields, a label is
/// negative or not below `classes`, a raw sample is not height x width x channels bytes, or any has 4 GiB or
/// more.
class PackedWriter final : public SampleWriter {
 public:
  explicit PackedWriter(const std::filesystem::path& path, PackedWriterOptions options = {});
  ~PackedWriter() override;

  void add(const StoredSample& sample) override;
  void finish() override;

  /// After finish(): as PackedStore::content_id() and PackedStore::file_bytes() give them.
  const std::string& content_id() const { return content_id_; }
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  struct Chunk;

  void check(const StoredSample& sample) const;
  void check_sides(const std::string& name, const StoredField& field) const;
  void begin_chunk(std::uint64_t offset);
  void end_chunk(std::uint64_t bytes);
  void seal(Chunk& chunk) const;

  PackedWriterOptions options_;
  std::unique_ptr<class AtomicFile> file_;
  std::vector<FieldSpec> more_;                   ///< of options_.fields, those beside image and label
  std::vector<std::byte> joined_;                 ///< a sample of several fields
  std::deque<Chunk> chunks_;                      ///< in the order of the file; the last one is being filled
  std::deque<std::shared_future<void>> sealing_;  ///< a failure stays in front, so that nothing goes on
  std::uint64_t end_;                             ///< of the last sample
  std::int64_t samples_ = 0, classes_ = 0;
  bool finished_ = false;
  std::string content_id_;
  std::int64_t file_bytes_ = 0;
};

}  // namespace athanor
