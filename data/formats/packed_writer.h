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
  /// Threads besides the caller's that compute CRCs and write; 0: the caller does it all. The file's bytes do
  /// not depend on it.
  int threads = 0;
  /// Number of classes; 0: the number of names, or the largest label + 1.
  std::int64_t classes = 0;
  std::vector<std::string> class_names = {};  ///< empty, or one for each class
  /// For samples with more than image and label: Dataset::fields(). The file then has version 2.
  std::vector<FieldSpec> fields = {};
};

/// Writes a packed file (data/formats/packed.h) that appears under its name once it is complete and on disk.
/// Its bytes depend only on samples, their order, page_bytes, classes, class_names and fields. Holds the
/// index (40 bytes per sample) and threads + 2 pages in memory. Throws ArgumentError on `fields` that
/// check_field_names() refuses. add() throws it if a sample has other fields, a label is negative or not
/// below `classes`, a raw sample is not height x width x channels bytes, or any has 4 GiB or more.
class PackedWriter final : public SampleWriter {
 public:
  explicit PackedWriter(const std::filesystem::path& path, PackedWriterOptions options = {});
  ~PackedWriter() override;

  void add(const StoredSample& sample) override;
  void finish() override;

  /// After finish(): equal to PackedStore::content_id() and PackedStore::file_bytes().
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
  std::vector<FieldSpec> more_;                   ///< options_.fields without image and label
  std::vector<std::byte> joined_;                 ///< a sample of several fields
  std::deque<Chunk> chunks_;                      ///< in file order; the last one is being filled
  std::deque<std::shared_future<void>> sealing_;  ///< a failure stays in front, so that nothing follows
  std::uint64_t end_;                             ///< of the last sample
  std::int64_t samples_ = 0, classes_ = 0;
  bool finished_ = false;
  std::string content_id_;
  std::int64_t file_bytes_ = 0;
};

}  // namespace athanor
