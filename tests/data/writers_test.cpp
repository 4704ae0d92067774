// Every format that create_samples() writes.
#include <cstdlib>

#include "data/formats/open.h"
#include "tests/support/stores.h"

namespace athanor::writers_test {

using namespace test;

struct Written {
  const char *name, *format;
  bool holds_raw, holds_encoded;
  int files;      ///< of one set
  bool one_size;  ///< of all images
};
constexpr Written kWritten[]{{"a.athp", "packed file", true, true, 1, false},
                             {"a.athp.json", "manifest of packed files", true, true, 2, false},
                             {"x_images.npy", "NumPy array", true, false, 2, true},
                             {"a.npz", "NumPy archive", true, false, 1, true},
                             {"a.h5", "HDF5 file", true, false, 1, true},
                             {"a.tar", "tar archive", false, true, 1, false},
                             {"a.tfrecord", "TFRecord file", true, true, 1, false},
                             {"a.bin", "raw pixel file", true, false, 3, true},
                             {"a-images-idx4-ubyte", "IDX file", true, false, 2, true}};

struct Size {
  std::int64_t count, height, width, channels, classes;
};
constexpr Size kSizes[]{{1, 1, 1, 1, 1},     {3, 5, 7, 1, 3},      {13, 3, 2, 3, 300},
                        {4, 1, 9, 4, 70000}, {300, 64, 65, 1, 10}, {2, 640, 601, 3, 2}};

std::vector<OwnedSample> encoded_samples() {
  return {encoded_sample(Codec::jpeg, 5, 3), encoded_sample(Codec::png, 512, 0),
          encoded_sample(Codec::jpeg, 513, 70000), encoded_sample(Codec::png, 5000, 1)};
}

/// A library, or the program that imports.
bool needs_what_is_absent(const IoError& error) {
  const std::string what = error.what();
  return what.find("made without it") != std::string::npos ||
         what.find("the program athanor") != std::string::npos;
}

/// A writer; null in a build without the library that it needs.
std::unique_ptr<SampleWriter> writer_at(const std::filesystem::path& path, std::int64_t classes = 0) {
  try {
    return create_samples(path, {.classes = classes});
  } catch (const IoError& error) {
    EXPECT_TRUE(needs_what_is_absent(error)) << error.what();
    return nullptr;
  }
}

void expect_read(const Written& format, const std::vector<OwnedSample>& samples) {
  const TempDir dir, cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  const auto path = dir / format.name;
  std::unique_ptr<SampleWriter> writer = writer_at(path, classes_of(samples));
  if (!writer) return;
  write_all(std::move(writer), samples);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), format.files)
      << "nothing else is left";
  EXPECT_EQ(format_of(path), format.format);
  try {
    const auto store = open_samples(path);
    const OwnedSample& first = samples[0];
    EXPECT_EQ(store->spec(), (ImageSpec{first.height, first.width, first.channels, classes_of(samples)}));
    expect_same(*store, samples);
  } catch (const IoError& error) {
    ASSERT_TRUE(needs_what_is_absent(error)) << error.what();
  }
}

TEST(Writers, WriteWhatReadersRead) {
  for (const Written& format : kWritten) {
    SCOPED_TRACE(format.name);
    for (const Size& s : kSizes) {
      if (format.holds_raw)
        expect_read(format, raw_samples(s.count, s.height, s.width, s.channels, s.classes));
    }
    if (format.holds_encoded) expect_read(format, encoded_samples());
  }
}

TEST(Writers, RejectUnsupportedSamplesAndLeaveNothing) {
  const OwnedSample raw = raw_samples(1, 2, 2, 3, 1)[0], jpeg = encoded_sample(Codec::jpeg, 20, 0);
  const auto with = [](OwnedSample sample, const auto& change) {
    change(sample);
    return sample;
  };
  for (const Written& format : kWritten) {
    SCOPED_TRACE(format.name);
    const TempDir dir;
    std::unique_ptr<SampleWriter> writer = writer_at(dir / format.name);
    if (!writer) continue;
    const OwnedSample& good = format.holds_raw ? raw : jpeg;
    std::vector<OwnedSample> refused{with(good, [](auto& s) { s.label = -1; }),
                                     with(raw, [](auto& s) { s.bytes.pop_back(); })};
    if (!format.holds_raw) refused.push_back(raw);
    if (!format.holds_encoded) refused.push_back(jpeg);
    for (const OwnedSample& sample : refused) EXPECT_THROW(writer->add(sample.view()), ArgumentError);
    writer->add(good.view());
    if (format.one_size) {
      EXPECT_THROW(writer->add(raw_samples(1, 2, 3, 3, 1)[0].view()), ArgumentError);
    }
    writer.reset();
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  }
}

}  // namespace athanor::writers_test
