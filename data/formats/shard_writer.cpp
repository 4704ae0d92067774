#include "data/formats/shard_writer.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "tensor/base/error.h"

namespace athanor {
namespace {

void check_absent(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error))
    detail::fail<IoError>("data: {} must not exist yet: remove the set, or choose another name",
                          path.string());
}

}  // namespace

ShardWriter::ShardWriter(Options options) : options_(std::move(options)) {
  if (!options_.list.empty()) check_absent(options_.list);
}

ShardWriter::~ShardWriter() {
  std::error_code ignored;
  // The list may exist although finish() has failed: if flushing its folder failed.
  if (finished_ || (!options_.list.empty() && std::filesystem::exists(options_.list, ignored))) return;
  const bool unfinished = writer_ != nullptr;
  writer_.reset();
  if (unfinished) shards_.pop_back();
  for (const Shard& shard : shards_) std::filesystem::remove(shard.path, ignored);
}

void ShardWriter::add(const StoredSample& sample) {
  const std::int64_t bytes = sample.stored_bytes();
  if (writer_ && bytes_ > 0 && bytes > options_.shard_bytes - bytes_) end_shard();
  if (!writer_) begin_shard();
  writer_->add(sample);
  bytes_ += bytes;
  ++shards_.back().samples;
}

void ShardWriter::finish() {
  if (!writer_ && shards_.empty()) begin_shard();
  if (writer_) end_shard();
  if (options_.finish) options_.finish(shards_);
  finished_ = true;
}

void ShardWriter::begin_shard() {
  std::filesystem::path path = options_.stem;
  path += fmt::format("-{:05}{}", shards_.size(), options_.suffix);
  check_absent(path);
  writer_ = options_.create(path);
  shards_.push_back({std::move(path), 0});
  bytes_ = 0;
}

void ShardWriter::end_shard() {
  writer_->finish();
  writer_.reset();
}

}  // namespace athanor
