#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "data/sample_writer.h"
#include "tensor/io/atomic_file.h"

// Shared by writers.

namespace athanor::detail {

/// A buffered output file that appears once it is complete.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path) : file_(path) {}

  void write(std::span<const std::byte> bytes);
  /// Number of bytes written.
  std::int64_t size() const { return size_; }
  void rewrite(std::int64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  void flush();

  AtomicFile file_;
  std::vector<std::byte> buffer_;
  std::int64_t size_ = 0;
};

/// The folder of a file to be written: created if missing, and removed if it stays empty.
class FolderOf {
 public:
  explicit FolderOf(const std::filesystem::path& path);
  ~FolderOf();
  FolderOf(const FolderOf&) = delete;
  FolderOf& operator=(const FolderOf&) = delete;

 private:
  std::filesystem::path folder_;
  bool made_ = false;
};

/// Throws ArgumentError if a sample has more than image and label, or lacks bytes, a label in range or, if
/// raw, a shape that fits.
void check_sample(const StoredSample& sample, std::int64_t index, const char* format);

/// Throws ArgumentError without samples: such a file is not written.
void check_some(std::int64_t samples, const char* format);

/// For writers with a fixed image size: raw samples, all of the first one's shape. Keeps their labels.
class UniformSamples {
 public:
  explicit UniformSamples(const char* format, std::int64_t classes = 0)
      : format_(format), classes_(classes) {}

  /// Throws ArgumentError if the sample does not match earlier ones, or its label is not below the classes
  /// (0: any).
  void add(const StoredSample& sample);
  void check_some() const { detail::check_some(size(), format_); }
  /// Of the first sample; the classes are known only after the last.
  const ImageSpec& spec() const { return spec_; }
  const std::vector<std::int64_t>& labels() const { return labels_; }
  std::int64_t size() const { return std::ssize(labels_); }

 private:
  const char* format_;
  std::int64_t classes_;
  ImageSpec spec_;
  std::vector<std::int64_t> labels_;
};

/// An additional file next to that of the images, made from all samples.
struct SideFile {
  std::filesystem::path path;
  std::function<std::vector<std::byte>(const UniformSamples& samples)> content;
};

/// The header before a file's images; its length does not depend on `count`.
using DenseHeader = std::vector<std::byte> (*)(std::int64_t count, const ImageSpec& spec);

/// Writes images of one size to one file, row by row, and additional data to others.
std::unique_ptr<SampleWriter> create_dense(const std::filesystem::path& images, const UniformSamples& samples,
                                           DenseHeader header, const std::vector<SideFile>& sides);

}  // namespace athanor::detail
