#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/dataset.h"
#include "data/sample_writer.h"
#include "tests/support/errors.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"

// What the tests of formats share: samples to write, comparing what comes back, and files that are damaged.

namespace athanor::test {

/// `count` raw images, no two alike, with labels `first_label`, `first_label` + 1, ... below `classes`.
inline std::vector<OwnedSample> raw_samples(std::int64_t count, std::int64_t height, std::int64_t width,
                                            std::int64_t channels, std::int64_t classes) {
  std::vector<OwnedSample> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    OwnedSample sample{{}, Codec::raw, height, width, channels, (classes - 1 + i) % classes};
    for (std::int64_t p = 0; p < height * width * channels; ++p) {
      sample.bytes.push_back(static_cast<char>(7 * p + 31 * i + 1));
    }
    samples.push_back(sample);
  }
  return samples;
}

/// The largest label + 1.
inline std::int64_t classes_of(const std::vector<OwnedSample>& samples) {
  std::int64_t classes = 0;
  for (const OwnedSample& sample : samples) classes = std::max(classes, sample.label + 1);
  return classes;
}

/// What tests/golden/make_format_goldens.py wrote.
inline std::vector<OwnedSample> golden_samples() {
  std::vector<OwnedSample> samples;
  for (int i = 0; i < 5; ++i) {
    samples.push_back({{}, Codec::raw, 3, 4, 3, 3 * i});
    for (int p = 0; p < 36; ++p) samples.back().bytes.push_back(static_cast<char>(11 * p + 50 * i));
  }
  return samples;
}

/// Bytes that begin as a JPEG or PNG does; nothing here decodes them.
inline OwnedSample encoded_sample(Codec codec, std::size_t bytes, std::int64_t label) {
  OwnedSample sample{codec == Codec::jpeg ? "\xff\xd8\xff\xe0" : "\x89PNG\r\n\x1a\n", codec, 0, 0, 0, label};
  for (std::size_t i = sample.bytes.size(); i < bytes; ++i) {
    sample.bytes.push_back(static_cast<char>(5 * i + static_cast<std::size_t>(label)));
  }
  return sample;
}

/// A CIFAR file: of each sample its label (of CIFAR-100 behind a coarse one, 0), then its planes.
inline std::string cifar_file(const std::vector<OwnedSample>& samples, std::int64_t classes) {
  std::string file;
  for (const OwnedSample& sample : samples) {
    if (classes == 100) file.push_back('\0');
    file.push_back(static_cast<char>(sample.label));
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = c; p < sample.bytes.size(); p += 3) file.push_back(sample.bytes[p]);
    }
  }
  return file;
}

inline void write_all(std::unique_ptr<SampleWriter> writer, const std::vector<OwnedSample>& samples) {
  for (const OwnedSample& sample : samples) writer->add(sample.view());
  writer->finish();
}

/// Fetches everything and adds it up, so that every byte is touched.
inline std::uint64_t read_all(const Dataset& store) {
  std::vector<std::byte> scratch;
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const StoredSample sample = store.fetch(i, scratch);
    for (const std::byte byte : sample.bytes) sum = sum * 31 + std::to_integer<std::uint64_t>(byte);
    sum = sum * 31 + static_cast<std::uint64_t>(sample.label);
  }
  return sum;
}

inline void expect_same(const Dataset& store, const std::vector<OwnedSample>& samples) {
  ASSERT_EQ(store.size(), std::ssize(samples));
  std::vector<std::byte> scratch;
  store.will_need(0, store.size());
  for (std::int64_t i = store.size() - 1; i >= 0; --i) {
    SCOPED_TRACE(store.where(i));
    const OwnedSample& wanted = samples[static_cast<std::size_t>(i)];
    const StoredSample sample = store.fetch(i, scratch);
    ASSERT_EQ(sample.bytes.size(), wanted.bytes.size());
    EXPECT_EQ(std::memcmp(sample.bytes.data(), wanted.bytes.data(), wanted.bytes.size()), 0);
    EXPECT_EQ(sample.codec, wanted.codec);
    EXPECT_EQ(sample.label, wanted.label);
    if (sample.codec == Codec::raw) {
      EXPECT_EQ(sample.height, wanted.height);
      EXPECT_EQ(sample.width, wanted.width);
      EXPECT_EQ(sample.channels, wanted.channels);
    }
  }
  EXPECT_THROW(store.fetch(-1, scratch), ArgumentError);
  EXPECT_THROW(store.fetch(store.size(), scratch), ArgumentError);
}

/// The message is one line that names the file and, behind it, a number: an offset.
inline bool names_place(const std::string& message, const std::string& file) {
  const std::size_t at = message.find(file);
  return at != std::string::npos && message.find('\n') == std::string::npos &&
         message.find_first_of("0123456789", at + file.size()) != std::string::npos;
}

/// A file that cannot be read, and what the error names besides it.
struct BadFile {
  std::string content;
  std::int64_t offset;
  std::vector<std::string> values;
};

inline void expect_named(const std::string& message, const std::string& file, const BadFile& bad) {
  EXPECT_TRUE(names(message, {file, std::to_string(bad.offset)}));
  EXPECT_TRUE(names(message, bad.values));
}

/// As write_file(), but to a new file: file systems take their time over one that is cut to nothing and
/// written again.
inline void replace_file(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);
  write_file(path, content);
}

}  // namespace athanor::test
