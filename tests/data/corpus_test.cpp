#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data/convert.h"
#include "data/formats/detail/tar_reader.h"
#include "data/formats/open.h"
#include "data/in_memory.h"
#include "tests/support/errors.h"
#include "tests/support/image_files.h"
#include "tests/support/stores.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_writer.h"
#include "trainer/tool/named_data.h"
#include "trainer/tool/pictures.h"

// Small odd sources: what each holds is used or told, whichever command opens it.

namespace athanor::corpus_test {

namespace fs = std::filesystem;
using test::TempDir;
using test::write_file;
using Told = std::map<std::string, std::int64_t>;  // count by cause
using Make = std::function<fs::path(const fs::path&)>;

struct Source {
  std::string name;
  Make make;  ///< in a folder of its own; returns the source's path
  std::int64_t samples = 0;
  Told told = {};
  std::int64_t unreadable = 0;  ///< of the samples
  std::int64_t pictures = -1;   ///< that predict finds in the folder; -1: it takes no such source
  std::int64_t held_out = -1;   ///< samples for evaluate; -1: the same
};

const std::string& picture() {
  static const std::string file = test::png_file(2, 2, PNG_COLOR_TYPE_GRAY, 8, false, {{0, 80}, {160, 240}});
  return file;
}

/// A folder of such files, each a picture; of names that end in '/', folders.
Make files(std::vector<std::string> names) {
  return [names](const fs::path& dir) {
    for (const std::string& name : names)
      name.ends_with('/') ? void(fs::create_directories(dir / name)) : write_file(dir / name, picture());
    return dir;
  };
}

fs::path links(const fs::path& dir) {
  const fs::path photos = dir / "photos";
  files({"elsewhere/3.png", "photos/cat/1.png", "photos/dog/"})(dir);
  fs::create_symlink("1.png", photos / "cat/2.png");
  for (const char* const name : {"linked", "again"})
    fs::create_directory_symlink(dir / "elsewhere", photos / "dog" / name);
  fs::create_directory_symlink(photos, photos / "cat/up");
  fs::create_directory_symlink("..", photos / "dog/up_and_up");
  fs::create_directory_symlink(dir, photos / "around");
  return photos;
}

// Names --------------------------------------------------------------------------------------------------

std::vector<std::string> odd_names() {
  return {"tab\there",  "new\nline",          "100%",        "%0A",       "caf\xc3\xa9", "cafe\xcc\x81",
          "latin-\xe9", " with spaces ",      "back\\slash", "quote\"s'", "a,b",         "-flag",
          "con",        std::string(255, 'x')};
}

std::vector<std::string> odd_files() {
  std::vector<std::string> all;
  for (const std::string& name : odd_names()) all.push_back(name + "/" + name.substr(0, 251) + ".png");
  return all;
}

// Archives -------------------------------------------------------------------------------------------------

struct Member {
  std::string name, content = {};
  char type = '0';
  std::string link = {};
};

std::string tar_of(const std::vector<Member>& members) {
  std::string archive;
  for (const Member& one : members) {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, one.name);
    put(100, "0000644");
    put(124, fmt::format("{:011o}", one.content.size()));
    put(148, "        ");
    header[156] = one.type;
    put(157, one.link);
    put(257, std::string("ustar\00000", 8));
    std::uint32_t sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    archive += header + one.content + std::string((512 - one.content.size() % 512) % 512, '\0');
  }
  return archive + std::string(1024, '\0');
}

Make tar(std::vector<Member> members, const std::string& behind = {}) {
  for (Member& one : members) {
    if (one.name.ends_with(".png") && one.type == '0') one.content = picture();
    if (one.name.ends_with(".cls")) one.content = "0";
  }
  return [members, behind](const fs::path& dir) {
    write_file(dir / "a.tar", tar_of(members) + behind);
    return dir / "a.tar";
  };
}

/// The sample of that name.
std::vector<Member> sample(const std::string& name) {
  return {{name + ".png"}, {name + ".cls"}};
}

std::vector<Member> both(std::vector<Member> a, const std::vector<Member>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Tables and single files ---------------------------------------------------------------------------------

Make table(const std::string& name, const std::string& text) {
  return [name, text](const fs::path& dir) {
    files({"images/1.png", "images/2.png"})(dir);
    write_file(dir / name, text);
    return dir / name;
  };
}

/// Three raw samples in a file of the format that the name gives.
Make written(const std::string& name) {
  return [name](const fs::path& dir) {
    const auto to = create_samples(dir / name);
    for (const test::OwnedSample& one : test::raw_samples(3, 2, 2, 1, 3)) to->add(one.view());
    to->finish();
    return dir / name;
  };
}

std::string npy(const char* shape, const std::string& data) {
  std::string header = fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': {}, }}", shape);
  header += std::string((128 - 11 - header.size()) % 64, ' ') + "\n";
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

fs::path npz(const fs::path& dir) {
  const std::string images = npy("(3, 1, 2)", "abcdef"), labels = npy("(3,)", std::string("\0\1\2", 3));
  write_file(dir / "a.npz", test::zip_of({{"x_train.npy", images},
                                          {"y_train.npy", labels},
                                          {"x_test.npy", images},
                                          {"y_test.npy", labels}}));
  return dir / "a.npz";
}

constexpr char kHidden[] = "hidden files or folders", kType[] = "files of another type",
               kPrograms[] = "folders of other programs", kEmpty[] = "folders without images",
               kTwice[] = "folders that a link leads to twice", kSets[] = "folders of other sets",
               kMembers[] = "members of another type",
               kFurther[] = "further images, of samples whose name ends at its first dot";

std::vector<Source> corpus() {
  std::vector<Source> all{
      {"other types",
       files({"cat/1.png", "cat/2.bmp", "cat/3.gif", "cat/4.tif", "dog/1.PNG", "dog/notes"}),
       2,
       {{kType, 4}},
       0,
       2},
      {"sub-folders",
       files({"cat/1.png", "cat/day/2.png", "cat/day/night/3.png", "dog/day/1.png"}),
       4,
       {},
       0,
       4},
      {"hidden",
       files({"cat/1.png", "cat/.2.png", "cat/.thumbs/3.png", "dog/1.png", ".git/1.png", ".4.png"}),
       2,
       {{kHidden, 4}},
       0,
       2},
      {"beside classes",
       files({"cat/1.png", "dog/1.png", "2.png", "readme.md"}),
       2,
       {{"images beside the folders of classes", 1}, {"files beside the folders of classes", 1}},
       0,
       3},
      {"empty classes",
       files({"cat/1.png", "dog/1.png", "bird/", "fish/deep/", "ant/notes.txt"}),
       2,
       {{kEmpty, 3}, {kType, 1}},
       0,
       2},
      {"programs",
       files({"cat/1.png", "cat/@eaDir/1.png", "dog/1.png", "__MACOSX/cat/1.png", "lost+found/"}),
       2,
       {{kPrograms, 3}},
       0,
       2},
      {"links", links, 3, {{kTwice, 4}}, 0, 3},
      {"odd names", files(odd_files()), std::ssize(odd_names()), {}, 0, std::ssize(odd_names())},
      {"train and test",
       files({"train/cat/1.png", "train/dog/1.png", "test/cat/2.png"}),
       2,
       {{kSets, 1}},
       0,
       3,
       1},
      {"a set and more",
       files({"train/cat/1.png", "train/dog/1.png", "train/2.png", "val/cat/2.png", "test/cat/3.png",
              "other/1.png", "__MACOSX/1.png", ".git/1.png", "labels.csv"}),
       2,
       {{kSets, 2},
        {"folders beside those of sets", 1},
        {kPrograms, 1},
        {kHidden, 1},
        {"files beside the folders of sets", 1},
        {"images beside the folders of classes", 1}},
       0,
       6,
       1},
      {"images and masks",
       files({"images/1.png", "images/a/2.png", "images/notes.txt", "masks/1.png", "masks/a/2.png",
              "masks/.3.png", "none/", ".git/1.png", "readme.md"}),
       2,
       {{kType, 1}, {kHidden, 2}, {kEmpty, 1}, {"files beside the folders", 1}}},

      {"tar", tar(both(sample("a"), sample("b"))), 2},
      {"tar, joined", tar(sample("a"), tar_of({{"b.png", picture()}, {"b.cls", "1"}})), 2},
      {"tar, junk behind",
       tar(sample("a"), std::string(1000, 'x')),
       1,
       {{"parts behind the end of the archive", 1}}},
      {"tar, sub-folders", tar(both({{"cat/", "", '5'}}, both(sample("cat/1"), sample("dog/1")))), 2},
      {"tar, dots",
       tar(both(sample("a"), {{"a.seg.png"}, {"b.v2.png"}, {"b.v2.cls"}, {"notes.txt"}, {"._a.png"}})),
       1,
       {{kFurther, 3}, {kMembers, 2}}},
      {"tar, links",
       tar(both(sample("a"), {{"b.cls"},
                              {"b.png", "", '1', "./a.png"},
                              {"./c.cls"},
                              {"./c.png", "", '1', "b.png"},
                              {"d.png", "", '2', "a.png"}})),
       3,
       {{"links, devices and other entries", 1}}},
      {"tar, pax",
       tar({{"x", detail::pax_record("path", std::string(150, 'n') + ".png"), 'x'},
            {"short.png"},
            {"x", detail::pax_record("path", std::string(150, 'n') + ".cls"), 'x'},
            {"short.cls"}}),
       1},

      {"csv", table("a.csv", "image,label\nimages/1.png,cat\nimages/2.png,dog\n"), 2},
      {"csv, a file is missing",
       table("a.csv", "image,label\nimages/1.png,cat\nimages/3.png,dog\n"),
       2,
       {},
       1},
      {"jsonl",
       table("a.jsonl",
             "{\"image\":\"images/1.png\",\"label\":0}\n\n{\"image\":\"images/2.png\",\"label\":1}"),
       2},
      {"jsonl, a file is missing",
       table("a.jsonl", "{\"image\":\"images/1.png\",\"label\":0}\n{\"image\":\"images/3.png\",\"label\":1}"),
       2,
       {},
       1},
      {"npz with more arrays", npz, 3, {{"arrays of other names", 2}}},
  };
  for (const auto& [train, held_out] : std::vector<std::pair<std::string, std::string>>{
           {"train", "val"}, {"train", "valid"}, {"training", "validation"}, {"Train", "Test"}}) {
    all.push_back({train + " and " + held_out,
                   files({train + "/cat/1.png", train + "/dog/1.png", held_out + "/dog/2.png",
                          held_out + "/dog/3.gif"}),
                   2,
                   {{kSets, 1}},
                   0,
                   3,
                   1});
  }
  for (const char* const name : {"a.athp", "a.athp.json", "a.npz", "a.tfrecord", "a-images-idx3-ubyte"})
    all.push_back({name, written(name), 3});
  return all;
}

Told told_by(const std::vector<Unused>& unused) {
  Told told;
  for (const Unused& one : unused) told[one.cause] += one.count;
  return told;
}

/// Calls f(source, its path, another folder) for each; a failure names the source.
void for_each_source(const std::function<void(const Source&, const fs::path&, const fs::path&)>& f) {
  for (const Source& source : corpus()) {
    SCOPED_TRACE(source.name);
    const TempDir dir;
    try {
      fs::create_directories(dir / "source");
      f(source, source.make(dir / "source"), dir.path());
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Corpus, InspectAndTrainingTellWhatIsNotUsed) {
  for_each_source([](const Source& source, const fs::path& path, const fs::path&) {
    const std::shared_ptr<const Dataset> data = open_samples(path);
    EXPECT_EQ(data->size(), source.samples);
    EXPECT_EQ(told_by(data->unused()), source.told);
    if (data->size() < 2) return;
    const auto [train, val] = split(data, 0.5);
    EXPECT_EQ(&train->origin(), &val->origin());  // so that it is told once
    EXPECT_EQ(told_by(train->unused()), source.told);
  });
}

TEST(Corpus, VerifyReadsEverySample) {
  for_each_source([](const Source& source, const fs::path& path, const fs::path&) {
    const auto data = open_samples(path);
    std::vector<std::byte> scratch;
    std::int64_t unreadable = 0;
    for (std::int64_t i = 0; i < data->size(); ++i) {
      try {
        data->fetch(i, scratch);
      } catch (const IoError&) {
        ++unreadable;
      }
    }
    EXPECT_EQ(unreadable, source.unreadable);
  });
}

TEST(Corpus, EvaluateOpensTheHeldOutPart) {
  for_each_source([](const Source& source, const fs::path& path, const fs::path&) {
    EXPECT_EQ(tool::open_named(path.string())->size(),
              source.held_out < 0 ? source.samples : source.held_out);
  });
}

TEST(Corpus, PackKeepsSamplesAndNames) {
  for_each_source([](const Source& source, const fs::path& path, const fs::path& dir) {
    if (source.unreadable > 0) return;
    const auto data = open_samples(path);
    const auto to = create_samples(
        dir / "packed.athp",
        {.classes = data->spec().classes, .class_names = data->class_names(), .fields = data->fields()});
    convert(*data, *to);
    to->finish();
    const auto packed = open_samples(dir / "packed.athp");
    EXPECT_EQ(packed->size(), source.samples);
    EXPECT_EQ(packed->class_names(), data->class_names());
    EXPECT_TRUE(packed->unused().empty());
  });
}

TEST(Corpus, PredictFindsTheImagesOfAFolder) {
  for_each_source([](const Source& source, const fs::path& path, const fs::path&) {
    if (source.pictures < 0) return;
    const tool::Pictures found = tool::pictures_of({path.string()});
    EXPECT_EQ(std::ssize(found.files), source.pictures) << text_of(found.unused);
  });
}

TEST(Corpus, AMemberWithoutItsPartnerIsNamedByItsPlace) {
  const TempDir dir;
  EXPECT_ERROR(IoError, open_samples(tar(both(sample("a"), {{"b.png"}}))(dir.path())), "a.tar", "2560",
               ".cls");
  EXPECT_ERROR(IoError, open_samples(tar(both(sample("a"), {{"b.cls"}}))(dir.path())), "a.tar", "2560",
               ".jpg");
}

}  // namespace athanor::corpus_test
