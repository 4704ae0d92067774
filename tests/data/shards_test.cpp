#include "data/formats/shards.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/formats/detail/bytes.h"
#include "data/formats/open.h"
#include "data/formats/tar.h"
#include "data/loader.h"
#include "data/sample_weights.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/loader_steps.h"
#include "tests/support/stores.h"
#include "tests/support/temp_dir.h"

namespace athanor::shards_test {

using namespace test;

std::vector<std::string> names_of(const TempDir& dir, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& shard : shards_of(dir / text))
    names.push_back(std::filesystem::relative(shard, dir.path()).string());
  return names;
}

using Names = std::vector<std::string>;

TEST(Shards, AreNamedByRangesListsAndPatterns) {
  const TempDir dir;
  for (const char* name : {"x-008.tar", "x-009.tar", "x-010.tar", "x-a.tar", "y-1.tar", "y-3.tar", "y-5.tar",
                           "sub/x-008.tar", "{1..2}.tar", "odd,name.tar", "z{}.tar"})
    write_file(dir / name, "");
  EXPECT_EQ(names_of(dir, "x-{008..010}.tar"), (Names{"x-008.tar", "x-009.tar", "x-010.tar"}));
  EXPECT_EQ(names_of(dir, "x-{010..8}.tar"), (Names{"x-010.tar", "x-009.tar", "x-008.tar"}));
  EXPECT_EQ(names_of(dir, "y-{1..5..2}.tar"), (Names{"y-1.tar", "y-3.tar", "y-5.tar"}));
  EXPECT_EQ(names_of(dir, "{x-{a,010},y-{3..5..2}}.tar"),
            (Names{"x-a.tar", "x-010.tar", "y-3.tar", "y-5.tar"}));
  EXPECT_EQ(names_of(dir, "{,sub/}x-008.tar"), (Names{"x-008.tar", "sub/x-008.tar"}));
  EXPECT_EQ(names_of(dir, "x-0*.tar"), (Names{"x-008.tar", "x-009.tar", "x-010.tar"}));
  EXPECT_EQ(names_of(dir, "x-00[89].tar"), (Names{"x-008.tar", "x-009.tar"}));
  EXPECT_EQ(names_of(dir, "{y,x}-?.tar"), (Names{"y-1.tar", "y-3.tar", "y-5.tar", "x-a.tar"}));
  // What exists is meant, and braces that are none stay.
  EXPECT_EQ(names_of(dir, "{1..2}.tar"), (Names{"{1..2}.tar"}));
  EXPECT_EQ(names_of(dir, "odd,name.tar"), (Names{"odd,name.tar"}));
  EXPECT_EQ(names_of(dir, "z{}.ta?"), (Names{"z{}.tar"}));
  EXPECT_EQ(names_of(dir, "absent.tar"), (Names{"absent.tar"}));

  const std::string both = (dir / "y-[13].tar").string() + ", " + (dir / "sub").string();
  EXPECT_EQ(shards_of(both),
            (std::vector<std::filesystem::path>{dir / "y-1.tar", dir / "y-3.tar", dir / "sub"}));
  EXPECT_EQ(shards_below(dir.path(), "y-{1,3}.tar,sub"),
            (dir / "y-{1,3}.tar").string() + "," + (dir / "sub").string());
  EXPECT_EQ(shards_below(dir.path(), "odd,name.tar"), dir / "odd,name.tar");
  EXPECT_EQ(shards_below(dir.path(), "/a.tar,/b.tar"), "/a.tar,/b.tar");
}

TEST(Shards, MayHaveCommasInTheirNames) {
  const TempDir dir;
  for (const char* name : {"a,b.tar", "c.tar"}) write_file(dir / name, "");
  const std::string a = (dir / "a,b.tar").string(), c = (dir / "c.tar").string();
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_EQ(shards_of(joined_shards({a, c})), (Paths{a, c}));
  EXPECT_EQ(shards_of(joined_shards({c + "," + c, a})), (Paths{c, c, a})) << "a word may be a list";
  EXPECT_EQ(joined_shards({a}), a);
  EXPECT_EQ(shards_of((dir / "a\\,b.tar").string()), (Paths{a}));
  EXPECT_EQ(shards_of(shards_below(dir.path(), "c.tar,a\\,b.tar")), (Paths{c, a}));
}

TEST(Shards, MissingOnesAreAllNamed) {
  const TempDir dir;
  for (const char* name : {"x-0.tar", "x-2.tar"}) write_file(dir / name, "");
  const std::string message = message_of<IoError>([&] { open_samples(dir / "x-{0..4}.tar"); });
  EXPECT_TRUE(names(message, {"x-{0..4}.tar", "5", "3", (dir / "x-1.tar").string(),
                              (dir / "x-3.tar").string(), (dir / "x-4.tar").string()}));
  EXPECT_EQ(message.find((dir / "x-2.tar").string()), message.npos) << message;
  EXPECT_EQ(message.find('\n'), message.npos);
  EXPECT_ERROR(IoError, open_samples(dir / "y-*.tar"), "y-*.tar");
  const std::string x = (dir / "x-0.tar").string();
  EXPECT_ERROR(IoError, open_samples(x + "," + (dir / "no.tar").string()), "no.tar");
  for (const std::string& text : {x + ",", "," + x, x + ",," + x})
    EXPECT_ERROR(IoError, open_samples(text), text, "comma", "empty");
  EXPECT_ERROR(IoError, shards_below(dir.path(), "x-0.tar,"), "x-0.tar,", "empty");
  EXPECT_ERROR(IoError, open_samples(dir / "x-{0..99999999}.tar"), "0..99999999");
  EXPECT_ERROR(IoError, shards_of(dir / "{0..999}{0..999}{0..999}{0..999}"), "1048576");
}

/// Ten raw images in each of three packed files and of two TFRecord files.
std::vector<OwnedSample> write_mixed(const TempDir& dir) {
  const std::vector<OwnedSample> all = raw_samples(50, 4, 5, 3, 7);
  for (int i = 0; i < 5; ++i)
    write_all(create_samples(dir / fmt::format("s-{}.{}", i, i < 3 ? "athp" : "tfrecord"), {.classes = 7}),
              {all.begin() + 10 * i, all.begin() + 10 * (i + 1)});
  return all;
}

TEST(Shards, OfSeveralFormatsAreOneSet) {
  const TempDir dir;
  const std::vector<OwnedSample> all = write_mixed(dir);
  const std::string text = (dir / "s-{0..2}.athp").string() + "," + (dir / "*.tfrecord").string();
  const auto store = open_samples(text);
  expect_same(*store, all);
  EXPECT_EQ(store->spec(), (ImageSpec{4, 5, 3, 7}));
  EXPECT_TRUE(names(store->where(25), {"s-2.athp"}));
  EXPECT_TRUE(names(store->where(35), {"s-3.tfrecord"}));
  EXPECT_TRUE(names(format_of(text), {"5", "packed file", "TFRecord file"}));
  EXPECT_FALSE(is_imported(text));
  EXPECT_FALSE(has_parts(text));

  // The largest label + 1; of other sizes none is stated.
  write_all(create_samples(dir / "more.npz"), {raw_sample(2, 2, 3, 11, 1)});
  EXPECT_EQ(open_samples((dir / "s-0.athp,").string() + (dir / "more.npz").string())->spec(),
            (ImageSpec{0, 0, 0, 12}));
}

TEST(Shards, FillAFolder) {
  const TempDir dir;
  for (const char* folder : {"set", "packed", "both"}) std::filesystem::create_directory(dir / folder);
  const std::vector<OwnedSample> all = raw_samples(20, 2, 2, 3, 5);
  write_all(create_samples(dir / "set/a.tfrecord"), {all.begin(), all.begin() + 10});
  write_all(create_samples(dir / "set/b.tfrecord"), {all.begin() + 10, all.end()});
  write_file(dir / "set/README", "text");
  write_file(dir / "set/.hidden", "");
  EXPECT_EQ(format_of(dir / "set"), "folder of shards");
  const auto store = open_samples(dir / "set");
  expect_same(*store, all);
  EXPECT_EQ(store->unused(), (std::vector<Unused>{{"files beside the shards", 1, {"README"}}}));

  // Files of a manifest are those of its set, once.
  write_all(create_samples(dir / "packed/c.athp.json", {.file_bytes = 50}), {all.begin(), all.begin() + 10});
  write_all(create_samples(dir / "packed/d.athp"), {all.begin() + 10, all.end()});
  expect_same(*open_samples(dir / "packed"), all);

  // Two sets are not one.
  write_all(create_samples(dir / "both/pets-train-0.tfrecord"), {all.begin(), all.begin() + 10});
  write_all(create_samples(dir / "both/pets-val-0.tfrecord"), {all.begin() + 10, all.end()});
  EXPECT_ERROR(IoError, open_samples(dir / "both"), "both", "pets-train-0.tfrecord", "pets-val-0.tfrecord",
               (dir / "both/pets-train-*").string());
  EXPECT_EQ(open_samples(dir / "both/pets-train-*")->size(), 10);
}

TEST(Shards, AreNotWhatLiesBesideFoldersOfClasses) {
  const TempDir dir;
  for (const char* name : {"photos/cat/x.jpg", "flat/x-1-of-3.jpg", "flat/x-2-of-3.csv"}) {
    std::filesystem::create_directories((dir / name).parent_path());
    write_file(dir / name, "a");
  }
  write_file(dir / "photos/a.athp.json", "broken");
  EXPECT_EQ(format_of(dir / "photos"), "image folder") << "whatever is in the manifest";
  EXPECT_EQ(format_of(dir / "flat"), "image folder");
  EXPECT_EQ(format_of(dir / "flat/x-2-of-3.csv"), "table of samples");
  EXPECT_ERROR(IoError, format_of(dir / "flat/x-1-of-3.jpg"), "x-1-of-3.jpg");
  write_file(dir / "flat/x-3-of-3.shard", "a");
  EXPECT_EQ(format_of(dir / "flat"), "folder of shards");
}

TEST(Shards, FillTheFoldersOfTwoSets) {
  const TempDir dir;
  const auto write = [&](const char* name, std::vector<std::string> classes) {
    std::filesystem::create_directories((dir / name).parent_path());
    write_all(create_samples(dir / name, {.class_names = std::move(classes)}),
              {encoded_sample(Codec::jpeg, 40, 0), encoded_sample(Codec::jpeg, 50, 1)});
  };
  write("pets/train/a.tar", {"dog", "cat"});
  write("pets/train/b.tar", {"cat", "ant"});
  write("pets/val/a.tar", {"dog", "cat"});
  const std::filesystem::path pets = dir / "pets";
  EXPECT_EQ(format_of(pets), "folders of shards of a training and a held-out set");
  EXPECT_TRUE(has_parts(pets));
  ASSERT_TRUE(sets_in(pets));
  EXPECT_EQ(sets_in(pets)->held_out, pets / "val");
  EXPECT_EQ(open_samples(pets)->size(), 4);
  const auto held_out = open_samples(pets, {.split = Split::test});
  ASSERT_EQ(held_out->size(), 2);
  EXPECT_EQ(held_out->class_names(), (Names{"ant", "cat", "dog"})) << "those of the training set";
  EXPECT_EQ(held_out->label(0), 2);
  EXPECT_EQ(held_out->label(1), 1);
}

TEST(Shards, ClassesAreMatchedByName) {
  const TempDir dir;
  const auto write = [&](const char* name, std::vector<std::string> classes) {
    write_all(create_samples(dir / name, {.class_names = std::move(classes)}),
              {encoded_sample(Codec::jpeg, 40, 0), encoded_sample(Codec::jpeg, 50, 1)});
  };
  write("a.tar", {"dog", "cat"});
  write("b.tar", {"cat", "ant"});
  const auto store = open_samples(dir / "{a,b}.tar");
  EXPECT_EQ(store->class_names(), (Names{"ant", "cat", "dog"}));
  EXPECT_EQ(store->spec().classes, 3);
  std::vector<std::int64_t> labels, fetched;
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < store->size(); ++i) {
    labels.push_back(store->label(i));
    fetched.push_back(store->fetch(i, scratch).label);
  }
  EXPECT_EQ(labels, (std::vector<std::int64_t>{2, 1, 1, 0}));
  EXPECT_EQ(fetched, labels);

  // The same names in the same order keep it.
  write("c.tar", {"dog", "cat"});
  EXPECT_EQ(open_samples(dir / "{a,c}.tar")->class_names(), (Names{"dog", "cat"}));

  write("d.tar", {});
  EXPECT_ERROR(IoError, open_samples(dir / "{a,d}.tar"), (dir / "a.tar").string(), (dir / "d.tar").string());
}

TEST(Shards, ThatDoNotFitAreNamed) {
  const TempDir dir;
  write_all(create_samples(dir / "a.tar"), {encoded_sample(Codec::jpeg, 40, 0)});
  write_file(dir / "b.tar", "text");
  EXPECT_ERROR(IoError, open_samples(dir / "{a,b}.tar"), (dir / "b.tar").string());
  // Of several, always the first.
  write_file(dir / "c.tar", "text");
  for (int i = 0; i < 20; ++i)
    EXPECT_ERROR(IoError, open_samples(dir / "{c,a,b}.tar"), (dir / "c.tar").string());
  // A column that the archive lacks.
  write_file(dir / "t.csv", "image,weight,label\na.png,1,0\n");
  EXPECT_ERROR(IoError, open_samples(dir / "{a.tar,t.csv}"), "fields", "a.png");
}

TEST(Shards, OfTablesHaveTheirNumbers) {
  const TempDir dir;
  write_file(dir / "a.csv", "image,weight,label\na.png,1.5,0\nb.png,2.5,1\n");
  write_file(dir / "b.csv", "image,weight,label\nc.png,0.5,1\n");
  write_file(dir / "c.csv", "image,weight\n");
  const auto data = open_samples(dir / "{a,b}.csv");
  EXPECT_EQ(data->numbers("weight"), (std::vector<double>{1.5, 2.5, 0.5})) << "without the images";
  EXPECT_ERROR(ArgumentError, data->numbers("height"), "height");
  // A table that cannot be read is a sample without weight.
  const auto kept = open_samples(dir / "{a,c}.csv", {.keep_damaged = true});
  EXPECT_TRUE(std::isnan(kept->numbers("weight").at(2)));
  EXPECT_ERROR(IoError, stored_sample_weights(*kept, "--sampler weights"), "c.csv");
  EXPECT_EQ(stored_sample_weights(*kept, "--sampler weights", true), (std::vector<double>{1.5, 2.5, 2}))
      << "drawn, and then replaced, as often as the others on average";
}

TEST(Shards, OfTablesHaveTheLabelsOfAll) {
  const TempDir dir;
  const auto opened = [&](const char* text, bool keep_damaged = false) {
    return open_samples(dir / text, {.labels = LabelKind::multilabel, .keep_damaged = keep_damaged});
  };
  write_file(dir / "a.csv", "image,label\na.png,hen;cat\n");
  write_file(dir / "b.csv", "image,label\nb.png,dog\nc.png,\n");
  const auto lists = opened("{a,b}.csv");
  EXPECT_EQ(lists->class_names(), (Names{"cat", "dog", "hen"}));
  EXPECT_EQ(lists->numbers("labels"), (std::vector<double>{1, 0, 1, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(opened("{b,a}.csv")->class_names(), (Names{"cat", "dog", "hen"}));
  write_file(dir / "c.csv", "image,label\n");
  const auto kept = opened("{c,a,b}.csv", true);
  EXPECT_EQ(kept->class_names(), (Names{"cat", "dog", "hen"}));
  EXPECT_TRUE(std::isnan(kept->numbers("labels").at(0)));
  EXPECT_EQ(kept->numbers("labels").at(5), 1) << "a hen";

  write_file(dir / "d.csv", "image,hen,cat\nd.png,0,1\n");
  write_file(dir / "e.csv", "image,cat,hen\ne.png,0,1\n");
  const auto columns = opened("{d,e}.csv");
  EXPECT_EQ(columns->class_names(), (Names{"hen", "cat"}));
  EXPECT_EQ(columns->numbers("labels"), (std::vector<double>{0, 1, 1, 0}));
  write_file(dir / "f.csv", "image,cat\nf.png,1\n");
  EXPECT_ERROR(IoError, opened("{d,f}.csv"), "f.csv", "'hen'", "--fields label=NAME");
}

/// What a loader delivers in an epoch.
std::vector<LoadedBatch> epoch_of(const Dataset& data, LoaderOptions options, std::int64_t epoch,
                                  std::int64_t delivered = 0) {
  Loader loader(data, options);
  return steps_of(loader, epoch, delivered);
}

TEST(Shards, AreReadAlikeByAnyNumberOfThreadsAndRanksAndAfterAResume) {
  const TempDir dir;
  write_mixed(dir);
  const auto data = open_samples((dir / "s-*").string());
  for (const Order order : {Order::random, Order::page_random}) {
    SCOPED_TRACE(name_of(order));
    // Pages of 7 straddle the shards of 10, and windows of 3 pages are less than the set.
    LoaderOptions options{.batch_size = 8, .shuffle = true, .seed = 3, .training = true, .workers = 0};
    options.order = order;
    options.page_samples = 7;
    options.window_pages = 3;
    const std::vector<LoadedBatch> expected = epoch_of(*data, options, 1);
    std::vector<std::int64_t> seen = samples_of(expected);
    std::ranges::sort(seen);
    for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], static_cast<std::int64_t>(i));
    ASSERT_EQ(seen.size(), 50u);
    EXPECT_NE(samples_of(expected), samples_of(epoch_of(*data, options, 2)));
    for (const int workers : {2, 5}) {
      options.workers = workers;
      EXPECT_EQ(epoch_of(*data, options, 1), expected) << workers;
      // In the midst of a shard.
      EXPECT_EQ(epoch_of(*data, options, 1, 24),
                (std::vector<LoadedBatch>(expected.begin() + 3, expected.end())));
    }
    options.workers = 2;
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(ranks);
      options.world_size = ranks;
      std::vector<LoadedBatch> joined(expected.size());
      for (options.rank = 0; options.rank < ranks; ++options.rank) {
        const std::vector<LoadedBatch> own = epoch_of(*data, options, 1);
        ASSERT_EQ(own.size(), joined.size());
        for (std::size_t i = 0; i < own.size(); ++i) {
          const auto append = [](auto& to, const auto& from) {
            to.insert(to.end(), from.begin(), from.end());
          };
          append(joined[i].samples, own[i].samples);
          append(joined[i].labels, own[i].labels);
          append(joined[i].pixels, own[i].pixels);
        }
      }
      EXPECT_EQ(joined, expected);
    }
    options.rank = 0;
    options.world_size = 1;
  }
}

/// The names in a folder, in byte order.
Names names_in(const TempDir& dir) {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

class WrittenShards : public testing::TestWithParam<const char*> {};

TEST_P(WrittenShards, HoldTheSetInOrder) {
  const TempDir dir;
  const std::filesystem::path path = dir / (std::string("a") + GetParam());
  std::vector<OwnedSample> samples;
  for (int i = 0; i < 7; ++i) samples.push_back(encoded_sample(Codec::jpeg, i == 4 ? 900 : 300, i));
  CreateOptions options;
  options.shard_bytes = 700;
  write_all(create_samples(path, options), samples);
  const std::string file = std::string(GetParam()) == ".athp.json" ? ".athp" : GetParam();
  Names wanted;
  for (int i = 0; i < 4; ++i) wanted.push_back(fmt::format("a-{:05}{}", i, file));
  if (file == ".athp") wanted.push_back("a.athp.json");
  EXPECT_EQ(names_in(dir), wanted);
  EXPECT_EQ(open_samples(dir / wanted[2])->size(), 1) << "a sample that is larger than a shard may be";
  expect_same(*open_samples(written_name(path, 700)), samples);

  // Nothing is overwritten, and nothing left behind.
  EXPECT_ERROR(IoError, write_all(create_samples(path, options), samples),
               (dir / (file == ".athp" ? "a.athp.json" : wanted[0])).string());
  EXPECT_EQ(names_in(dir), wanted);
  const TempDir other;
  {
    const auto writer = create_samples(other / (std::string("a") + GetParam()), options);
    for (const OwnedSample& sample : samples) writer->add(sample.view());
  }
  EXPECT_EQ(names_in(other), Names());
}

INSTANTIATE_TEST_SUITE_P(Formats, WrittenShards, testing::Values(".tar", ".tfrecord", ".athp", ".athp.json"));

TEST(WrittenShards, AreOfSomeFormats) {
  const TempDir dir;
  CreateOptions options;
  options.shard_bytes = 700;
  EXPECT_ERROR(ArgumentError, create_samples(dir / "a.npz", options), "a.npz", "tar archive");
  EXPECT_ERROR(ArgumentError, create_samples(dir / "photos", options), "photos", "packed file");
}

/// A cache folder of a test's own.
class KeptIndex : public testing::TestWithParam<const char*> {
 protected:
  KeptIndex() { ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1); }
  ~KeptIndex() override { ::unsetenv("XDG_CACHE_HOME"); }

  /// Writes a shard that is large enough, and an hour old.
  void write(const std::string& content) {
    replace_file(path_, content);
    set_age(1);
  }
  void set_age(int hours) {
    std::filesystem::last_write_time(
        path_, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  /// The only file that was kept.
  std::filesystem::path kept() const {
    std::vector<std::filesystem::path> all;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/athanor/indexed", error))
      all.push_back(entry.path());
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? std::filesystem::path() : all[0];
  }

  TempDir dir_;
  std::filesystem::path path_ = dir_ / GetParam();
  const std::vector<OwnedSample> samples_{encoded_sample(Codec::jpeg, 400'000, 3),
                                          encoded_sample(Codec::png, 500'000, 0),
                                          encoded_sample(Codec::jpeg, 300'000, 70'000)};
};

TEST_P(KeptIndex, IsUsedUntilTheFileChanges) {
  write_all(create_samples(path_, {.class_names = {}}), samples_);
  const std::string content = read_file(path_);
  set_age(-1);  // however long the writing has taken
  const std::uint64_t id = data_id(*open_samples(path_));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "cache")) << "a file that was just written may still change";
  write(content);
  expect_same(*open_samples(path_), samples_);
  (void)kept();
  EXPECT_EQ(data_id(*open_samples(path_)), id);

  // Where the first header was, nobody looks.
  std::string other = content;
  other[0] ^= 1;
  const auto written = std::filesystem::last_write_time(path_);
  write(other);
  std::filesystem::last_write_time(path_, written);
  EXPECT_EQ(open_samples(path_)->size(), 3);
  EXPECT_EQ(data_id(*open_samples(path_)), id);
  set_age(2);
  EXPECT_ERROR(IoError, open_samples(path_), path_.string(), "offset 0");

  // Another size, at the same time.
  write_all(create_samples(path_), {samples_[0], samples_[1], samples_[2], samples_[0]});
  std::filesystem::last_write_time(path_, written);
  EXPECT_EQ(open_samples(path_)->size(), 4);

  // Other names of fields, another index.
  if (std::string(GetParam()) == "a.tar") {
    EXPECT_EQ(open_samples(path_, {.fields = "label=other"})->size(), 4);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_ / "cache/athanor/indexed"), {}), 2);
  }
}

TEST_P(KeptIndex, IsNotTrustedIfDamaged) {
  write_all(create_samples(path_), samples_);
  write(read_file(path_));
  (void)open_samples(path_);
  const std::filesystem::path at = kept();
  const std::string index = read_file(at);
  for (std::size_t i = 0; i < index.size(); i += 3) {
    std::string damaged = index;
    damaged[i] ^= 4;
    write_file(at, i % 2 == 0 ? damaged : index.substr(0, i));
    expect_same(*open_samples(path_), samples_);
    ASSERT_EQ(read_file(at), index) << i;
  }
  write_file(at, index + "more");
  expect_same(*open_samples(path_), samples_);
  EXPECT_EQ(read_file(at), index);
}

TEST_P(KeptIndex, NeedsNoFolder) {
  write_all(create_samples(path_), samples_);
  write(read_file(path_));
  write_file(dir_ / "cache", "a file");
  expect_same(*open_samples(path_), samples_);
  EXPECT_EQ(read_file(dir_ / "cache"), "a file");
}

INSTANTIATE_TEST_SUITE_P(Formats, KeptIndex, testing::Values("a.tar", "a.tfrecord"));

/// Ten samples each in three shards, the second of which is cut behind its fourth sample.
class DamagedShards : public testing::TestWithParam<const char*> {
 protected:
  DamagedShards() {
    for (int i = 0; i < 3; ++i) {
      std::vector<OwnedSample> samples;
      for (int k = 0; k < 10; ++k)
        samples.push_back({noise(4 * 5 * 3, static_cast<std::uint64_t>(10 * i + k)), Codec::raw, 4, 5, 3, k});
      write_all(create_samples(shard(i)), samples);
    }
    content_ = read_file(shard(1));
    write_file(shard(1), content_.substr(0, content_.size() * 45 / 100));
  }
  std::filesystem::path shard(int i) const { return dir_ / fmt::format("s-{}.{}", i, GetParam()); }
  std::filesystem::path all() const { return dir_ / fmt::format("s-*.{}", GetParam()); }

  TempDir dir_;
  std::string content_;
};

TEST_P(DamagedShards, EndTheRunOrAreOneBadSample) {
  EXPECT_ERROR(IoError, open_samples(all()), shard(1).string(), "offset");
  const auto data = open_samples(all(), {.keep_damaged = true});
  const std::int64_t bad = std::string(GetParam()) == "athp" ? 10 : 14;
  ASSERT_EQ(data->size(), bad + 11);
  std::vector<std::byte> scratch;
  EXPECT_ERROR(IoError, data->fetch(bad, scratch), shard(1).string(), "offset");
  EXPECT_EQ(data->label(bad), 0);
  EXPECT_EQ(data->fetch(bad - 1, scratch).label, (bad - 1) % 10);
  EXPECT_EQ(data->fetch(bad + 1, scratch).label, 0);
  EXPECT_EQ(data->spec(), (ImageSpec{4, 5, 3, 10}));
  const std::vector<Unused> unused = data->unused();
  ASSERT_EQ(unused.size(), 1u) << "which the first lines of a run name";
  EXPECT_EQ(unused[0].count, 1);
  EXPECT_EQ(unused[0].names[0], shard(1).string() + (bad == 10 ? ": all" : ": about 1 sample"));

  // The policy is the loader's.
  LoaderOptions options{.batch_size = 5, .workers = 0};
  Loader strict(*data, options);
  Batch batch;
  const auto read_all_of = [&](Loader& loader) {
    loader.start_epoch(0);
    while (loader.next(batch)) continue;
  };
  EXPECT_ERROR(IoError, read_all_of(strict), shard(1).string());
  options.bad_samples.skip = true;
  Loader skips(*data, options);
  read_all_of(skips);
  EXPECT_EQ(skips.stats().skipped, 1);
  EXPECT_TRUE(names(skips.stats().first_skipped, {shard(1).string()}));
}

TEST_P(DamagedShards, AreNamedIfNoneIsWhole) {
  for (int i = 0; i < 3; ++i) write_file(shard(i), "text");
  EXPECT_ERROR(IoError, open_samples(all(), {.keep_damaged = true}), shard(0).string());
}

INSTANTIATE_TEST_SUITE_P(Formats, DamagedShards, testing::Values("tfrecord", "athp"));

TEST(DamagedShard, OfTarIsReadUpToTheDamage) {
  const TempDir dir;
  std::vector<OwnedSample> samples;
  for (int i = 0; i < 6; ++i) samples.push_back(encoded_sample(Codec::jpeg, 600, i));
  write_all(create_tar(dir / "a.tar"), samples);
  // A sample has three blocks of 512 bytes for its image, and two for its label: the fourth has half an
  // image.
  const std::string content = read_file(dir / "a.tar");
  write_file(dir / "a.tar", read_file(dir / "a.tar").substr(0, 3 * 5 * 512 + 700));
  EXPECT_ERROR(IoError, open_samples(dir / "a.tar"), "a.tar", "offset 8192", "000000003.jpg");
  const auto data = open_samples(dir / "a.tar", {.keep_damaged = true});
  ASSERT_EQ(data->size(), 4);
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(data->fetch(i, scratch).label, i);
  EXPECT_ERROR(IoError, data->fetch(3, scratch), "a.tar", "offset 8192", "000000003.jpg");
  EXPECT_EQ(data->unused()[0].names, (Names{(dir / "a.tar").string() + ": about 1 sample"}));
  // In the middle, the size of the rest tells about how many.
  std::string whole = content;
  whole[3 * 5 * 512] = 'x';  // in a header, whose checksum is then wrong
  write_file(dir / "b.tar", whole);
  EXPECT_EQ(open_samples(dir / "b.tar", {.keep_damaged = true})->unused()[0].names,
            (Names{(dir / "b.tar").string() + ": about 7 samples, by the size of the rest"}));
  // Without a sample before, there is nothing to keep.
  write_file(dir / "a.tar", read_file(dir / "a.tar").substr(0, 700));
  EXPECT_ERROR(IoError, open_samples(dir / "a.tar", {.keep_damaged = true}), "a.tar", "offset 512");
}

TEST(DamagedShard, OfTfRecordKeepsWhatIsBehindABadRecord) {
  const TempDir dir;
  const std::vector<OwnedSample> samples = raw_samples(6, 4, 5, 3, 6);
  write_all(create_samples(dir / "a.tfrecord"), samples);
  std::string content = read_file(dir / "a.tfrecord");
  content[content.find(samples[2].bytes)] ^= 1;
  write_file(dir / "a.tfrecord", content);
  EXPECT_ERROR(IoError, open_samples(dir / "a.tfrecord"), "a.tfrecord", "CRC");
  const auto data = open_samples(dir / "a.tfrecord", {.keep_damaged = true});
  ASSERT_EQ(data->size(), 6);
  std::vector<std::byte> scratch;
  EXPECT_ERROR(IoError, data->fetch(2, scratch), "a.tfrecord", "CRC");
  EXPECT_EQ(data->unused()[0].names, (Names{(dir / "a.tfrecord").string() + ": 1 sample"}));
  EXPECT_EQ(data->fetch(5, scratch).label, samples[5].label);
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(Shards, OfAnyNumberNeedFewOpenFiles) {
  const TempDir dir;
  constexpr int kShards = 300;
  for (int i = 0; i < kShards; ++i)
    write_all(create_samples(dir / fmt::format("s-{:03}.{}", i, i % 2 == 0 ? "athp" : "tfrecord")),
              {raw_sample(4, 5, 3, i, static_cast<std::uint64_t>(i))});
  const std::size_t before = open_descriptors();
  const auto data = open_samples(dir / "s-*");
  ASSERT_EQ(data->size(), kShards);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::byte> scratch;
    for (std::int64_t i = 0; i < kShards; ++i) {
      const StoredSample sample = data->fetch(i, scratch);
      ASSERT_EQ(sample.label, i);
      ASSERT_EQ(detail::text_of(sample.bytes), noise(4 * 5 * 3, static_cast<std::uint64_t>(i)));
    }
    EXPECT_LE(open_descriptors(), before + 257);
  }
  // The first ones were closed; another file in the place of one is not read on.
  std::filesystem::copy_file(dir / "s-003.tfrecord", dir / "copy");
  std::filesystem::rename(dir / "copy", dir / "s-001.tfrecord");
  std::vector<std::byte> scratch;
  EXPECT_ERROR(IoError, data->fetch(1, scratch), "s-001.tfrecord");
  EXPECT_EQ(data->fetch(3, scratch).label, 3);
  // Nor is a mapped one that has become shorter, whether it was closed or is open.
  for (const int i : {2, 298}) {
    const std::string name = fmt::format("s-{:03}.athp", i);
    std::filesystem::resize_file(dir / name, 100);
    EXPECT_ERROR(IoError, data->fetch(i, scratch), name);
  }
  std::filesystem::rename(dir / "s-006.athp", dir / "s-004.athp");
  EXPECT_ERROR(IoError, data->fetch(4, scratch), "s-004.athp");
}

}  // namespace athanor::shards_test
