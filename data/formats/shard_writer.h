#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/sample_writer.h"

namespace athanor {

/// Writes a set in several files, the shards: STEM-00000SUFFIX, STEM-00001SUFFIX, ..., of which a file ends
/// before its samples would exceed a size. None of these names may exist.
class ShardWriter final : public SampleWriter {
 public:
  struct Shard {
    std::filesystem::path path;
    std::int64_t samples = 0;
  };
  struct Options {
    std::filesystem::path stem;
    std::string suffix;
    std::int64_t shard_bytes = 0;  ///< of samples, in one file
    /// Makes the writer of one shard.
    std::function<std::unique_ptr<SampleWriter>(const std::filesystem::path&)> create;
    /// Called by finish() once all shards are complete, to list them in the file `list`.
    std::function<void(const std::vector<Shard>&)> finish = {};
    std::filesystem::path list = {};
  };

  explicit ShardWriter(Options options);
  ~ShardWriter() override;
  void add(const StoredSample& sample) override;
  void finish() override;

 private:
  void begin_shard();
  void end_shard();

  Options options_;
  std::unique_ptr<SampleWriter> writer_;  // of the last shard
  std::vector<Shard> shards_;
  std::int64_t bytes_ = 0;  // in the last shard
  bool finished_ = false;
};

}  // namespace athanor
