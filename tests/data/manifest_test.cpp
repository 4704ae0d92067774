#include "data/formats/manifest.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "data/formats/open.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"

namespace athanor::manifest_test {

using test::encoded_sample, test::OwnedSample, test::raw_sample, test::read_file, test::TempDir,
    test::write_file;

std::vector<OwnedSample> images(int count) {
  std::vector<OwnedSample> samples;
  for (int i = 0; i < count; ++i)
    samples.push_back(raw_sample(4, 5, 3, i % 7, static_cast<std::uint64_t>(i)));
  return samples;
}

void write(const std::filesystem::path& path, const std::vector<OwnedSample>& samples,
           std::int64_t file_bytes, const PackedWriterOptions& options = {}) {
  const auto writer = create_manifest(path, file_bytes, options);
  for (const OwnedSample& sample : samples) writer->add(sample.view());
  writer->finish();
}

void expect_holds(const Dataset& store, const std::vector<OwnedSample>& samples) {
  ASSERT_EQ(store.size(), std::ssize(samples));
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const StoredSample got = store.fetch(i, scratch);
    const OwnedSample& expected = samples[static_cast<std::size_t>(i)];
    EXPECT_TRUE(std::ranges::equal(got.bytes, expected.view().bytes)) << i;
    EXPECT_EQ(got.label, expected.label);
    EXPECT_EQ(got.codec, expected.codec);
  }
}

TEST(Manifest, FilesReadAsOne) {
  const TempDir dir;
  PackedWriterOptions options;
  options.class_names = {"a", "b", "c", "d", "e", "f", "g"};
  write(dir / "set.athp.json", images(100), 600, options);  // 10 images of 60 bytes
  EXPECT_EQ(manifest_files(dir / "set.athp.json").size(), 10u);
  EXPECT_EQ(manifest_files(dir / "set.athp.json")[3], dir / "set-00003.athp");
  EXPECT_EQ(PackedStore(dir / "set-00003.athp").size(), 10);
  const auto store = open_samples(dir / "set.athp.json");
  expect_holds(*store, images(100));
  EXPECT_EQ(store->spec(), (ImageSpec{4, 5, 3, 7}));
  EXPECT_EQ(store->class_names(), options.class_names);
  EXPECT_TRUE(test::names(store->where(35), {"set-00003.athp"}));
  store->will_need(5, 70);
  store->will_need(-5, 1000);
  std::vector<std::byte> scratch;
  EXPECT_ERROR(ArgumentError, store->fetch(100, scratch), "[0, 100)", "100");
  EXPECT_ERROR(ArgumentError, store->fetch(-1, scratch), "[0, 100)", "-1");
}

TEST(Manifest, FilesEndBeforeTheyAreTooLarge) {
  const TempDir dir;
  const std::vector<OwnedSample> samples{encoded_sample(50, 0, 1), encoded_sample(51, 9, 2),
                                         encoded_sample(500, 1, 3), encoded_sample(1, 0, 4),
                                         encoded_sample(99, 0, 5)};
  write(dir / "a.athp.json", samples, 100);
  std::vector<std::int64_t> sizes;
  for (const auto& file : manifest_files(dir / "a.athp.json")) sizes.push_back(PackedStore(file).size());
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{1, 1, 1, 2}));
  const auto store = open_manifest(dir / "a.athp.json");
  expect_holds(*store, samples);
  EXPECT_EQ(store->spec(), (ImageSpec{0, 0, 0, 10}));
}

TEST(Manifest, SizesThatDifferBetweenFilesAreNotStated) {
  const TempDir dir;
  write(dir / "a.athp.json", {raw_sample(2, 2, 1, 0, 1), raw_sample(2, 3, 1, 0, 2)}, 1);
  EXPECT_EQ(open_manifest(dir / "a.athp.json")->spec(), (ImageSpec{0, 0, 0, 1}));
}

TEST(Manifest, ASetWithoutSamplesIsOne) {
  const TempDir dir;
  write(dir / "none.athp.json", {}, 100);
  EXPECT_EQ(open_manifest(dir / "none.athp.json")->size(), 0);
}

TEST(Manifest, NamesWhatDoesNotFit) {
  const TempDir dir;
  const auto path = dir / "set.athp.json";
  write(path, images(30), 600);
  const auto message = [&] { return test::message_of<IoError>([&] { open_manifest(path); }); };
  const std::string text = read_file(path), second = read_file(dir / "set-00001.athp");

  std::filesystem::copy_file(dir / "set-00002.athp", dir / "set-00001.athp",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(test::names(message(), {"set.athp.json", "set-00001.athp", "content id", "10"}));
  std::filesystem::remove(dir / "set-00001.athp");
  EXPECT_TRUE(test::names(message(), {"set-00001.athp"}));
  write_file(dir / "set-00001.athp", second);
  EXPECT_EQ(message(), "");

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    write_file(path, changed);
    return message();
  };
  EXPECT_TRUE(test::names(with("\"version\": 1", "\"version\": 2"), {"\"version\": 1", "2"}));
  EXPECT_TRUE(test::names(with("athanor manifest", "menu"), {"athanor manifest", "menu"}));
  EXPECT_TRUE(test::names(with("set-00001.athp", "../set-00001.athp"), {"name", "../set-00001.athp"}));
  EXPECT_TRUE(test::names(with("\"samples\": 10", "\"samples\": 11"), {"set-00000.athp", "11", "10"}));
  EXPECT_TRUE(test::names(with("\"samples\": 10", "\"samples\": \"x\""), {"samples"}));
  EXPECT_TRUE(test::names(with("\"samples\": 10", "\"samples\": 10.5"), {"samples"}));
  EXPECT_TRUE(test::names(with("set-00001.athp", "set\\n00001.athp"), {"name", "set\\n00001.athp"}));
  // The message must not go down as deep as the file does.
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_TRUE(test::names(with("\"version\": 1", "\"version\": " + deep), {"athanor manifest", "array"}));
  for (std::size_t length = 0; length + 1 < text.size(); length += 7) {
    write_file(path, text.substr(0, length));
    EXPECT_TRUE(test::names(message(), {"set.athp.json"})) << length;
  }
}

TEST(Manifest, LeavesNothingBehindAndOverwritesNothing) {
  const TempDir dir;
  {
    const auto writer = create_manifest(dir / "a.athp.json", 60);
    for (const OwnedSample& sample : images(5)) writer->add(sample.view());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  write(dir / "a.athp.json", images(5), 60);
  EXPECT_ERROR(IoError, create_manifest(dir / "a.athp.json", 60), "a.athp.json");
  std::filesystem::remove(dir / "a.athp.json");
  EXPECT_ERROR(IoError, write(dir / "a.athp.json", images(5), 60), "a-00000.athp");
  EXPECT_TRUE(std::filesystem::exists(dir / "a-00000.athp"));
  EXPECT_ERROR(ArgumentError, create_manifest(dir / ".athp.json", 60), "manifest", ".athp.json");
  EXPECT_ERROR(ArgumentError, create_manifest(dir / "b.athp.json", 0), "manifest", "file_bytes", "0");
}

}  // namespace athanor::manifest_test
