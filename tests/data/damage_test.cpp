// Every format that is read, with its files cut, grown and changed, byte by byte.
#include <cstdlib>
#include <ostream>

#include "data/formats/open.h"
#include "tests/support/key_values.h"
#include "tests/support/stores.h"

namespace athanor::damage_test {

using namespace test;

/// What a reader finds out about its files.
enum class Finds {
  nothing,  ///< text, or pixels: other samples, fewer ones, or an error
  cuts,     ///< fewer bytes than before, but no wrong ones
  all,      ///< checksums: no damage changes a sample
};

struct Format {
  const char* name;                ///< of the set
  std::vector<std::string> files;  ///< to damage
  Finds finds;
  std::int64_t fewer = 0;  ///< cuts that leave a set of fewer samples, between records
  std::size_t step = 1;    ///< of the lengths and bytes
  std::function<void(const std::filesystem::path& at)> make = {};  ///< otherwise by create_samples()
};

void PrintTo(const Format& format, std::ostream* to) {
  *to << format.name;
}

void make_table(const std::filesystem::path& at) {
  const bool csv = at.extension() == ".csv";
  std::string text = csv ? "image,label,box.0:boxes,box.1,box.2,box.3\n" : "";
  for (const char* name : {"a", "b"}) {
    text += csv ? fmt::format("{0}.png,{0},1,2,3,4\n", name)
                : fmt::format("{{\"image\": \"{0}.png\", \"label\": \"{0}\", \"v\": [1, 2.5]}}\n", name);
    write_file(at.parent_path() / (name + std::string(".png")), encoded_sample(Codec::png, 40, 1).bytes);
  }
  write_file(at, text);
}

/// Opens and reads everything: what was read, or the error.
std::string outcome(const std::filesystem::path& path) {
  std::uint64_t sum = 0;
  std::int64_t size = 0;
  const std::string message = message_of<IoError>([&] {
    const auto store = open_samples(path);
    size = store->size();
    sum = read_all(*store);
  });
  return message.empty() ? fmt::format("{} samples, {}", size, sum) : message;
}

class Damage : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
    path_ = dir_ / GetParam().name;
    const std::string name = GetParam().name;
    if (GetParam().make) {
      GetParam().make(path_);
    } else {
      try {
        write_all(create_samples(path_), name == "a.tar" ? encoded() : raw_samples(3, 2, 2, 3, 3));
      } catch (const IoError& error) {
        GTEST_SKIP() << error.what();
      }
    }
    whole_ = outcome(path_);
    if (whole_.find("the program athanor") != whole_.npos || whole_.find("made without it") != whole_.npos)
      GTEST_SKIP() << whole_;
    ASSERT_TRUE(read(whole_)) << whole_;
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  static std::vector<OwnedSample> encoded() {
    return {encoded_sample(Codec::jpeg, 40, 0), encoded_sample(Codec::png, 700, 1)};
  }
  static bool read(const std::string& outcome) { return outcome.find(" samples, ") < 5; }
  /// One line that names the place.
  bool is_error(const std::string& outcome) const {
    return outcome.find('\n') == outcome.npos && outcome.find(dir_.path().string()) != outcome.npos;
  }

  TempDir dir_;
  std::filesystem::path path_;
  std::string whole_;
};

TEST_P(Damage, ACutFileIsAnErrorOrTheSame) {
  std::int64_t fewer = 0;
  for (const std::string& name : GetParam().files) {
    const std::string content = read_file(dir_ / name);
    for (std::size_t length = 0; length < content.size(); length += GetParam().step) {
      replace_file(dir_ / name, content.substr(0, length));
      const std::string got = outcome(path_);
      if (got == whole_ || is_error(got)) continue;
      ASSERT_TRUE(read(got)) << name << " of " << length << " bytes: " << got;
      ++fewer;
    }
    replace_file(dir_ / name, content);
  }
  if (GetParam().finds != Finds::nothing) {
    EXPECT_EQ(fewer, GetParam().fewer);
  }
}

TEST_P(Damage, AGrownFileIsAnErrorOrTheSame) {
  for (const std::string& name : GetParam().files) {
    const std::string content = read_file(dir_ / name);
    for (const std::string& more :
         {std::string(1, '\0'), std::string(1, 'x'), std::string(5000, '\0'), content}) {
      replace_file(dir_ / name, content + more);
      const std::string got = outcome(path_);
      ASSERT_TRUE(got == whole_ || is_error(got) || (read(got) && GetParam().finds != Finds::all) ||
                  GetParam().fewer > 0)
          << name << " and " << more.size() << " bytes: " << got;
    }
    replace_file(dir_ / name, content);
  }
}

TEST_P(Damage, NoChangedByteCrashesAReader) {
  for (const std::string& name : GetParam().files) {
    const std::string content = read_file(dir_ / name);
    std::int64_t errors = 0;
    for (std::size_t at = 0; at < content.size(); at += GetParam().step) {
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string damaged = content;
        damaged[at] = static_cast<char>(damaged[at] ^ change);
        replace_file(dir_ / name, damaged);
        const std::string got = outcome(path_);
        errors += is_error(got);
        ASSERT_TRUE(got == whole_ || is_error(got) || (read(got) && GetParam().finds != Finds::all))
            << name << ", byte " << at << " ^ " << change << ": " << got;
      }
    }
    replace_file(dir_ / name, content);
    if (GetParam().finds == Finds::all) {
      EXPECT_GT(errors, 0) << name;
    }
  }
}

const std::vector<Format> kFormats{
    {"a.athp", {"a.athp"}, Finds::all, 0, 31},
    {"a.athp.json", {"a.athp.json", "a-00000.athp"}, Finds::all, 0, 31},
    {"images.npy", {"images.npy", "labels.npy"}, Finds::cuts},
    {"a.npz", {"a.npz"}, Finds::all},
    {"a.tar", {"a.tar"}, Finds::cuts, 0, 3},
    {"a.tfrecord", {"a.tfrecord"}, Finds::all, 2},
    {"a-images-idx4-ubyte", {"a-images-idx4-ubyte", "a-labels-idx1-ubyte"}, Finds::cuts},
    {"a.bin", {"a.bin", "a.labels.bin", "a.json"}, Finds::cuts},
    {"cifar",
     {"cifar/test_batch.bin"},
     Finds::cuts,
     0,
     97,
     [](const std::filesystem::path& at) {
       for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"})
         write_file(at / name, cifar_file(raw_samples(1, 32, 32, 3, 10), 10));
     }},
    {"table.csv", {"table.csv"}, Finds::nothing, 0, 1, make_table},
    {"table.jsonl", {"table.jsonl"}, Finds::nothing, 0, 1, make_table},
};
std::string name_of_case(const ::testing::TestParamInfo<Format>& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
  return name;
}
INSTANTIATE_TEST_SUITE_P(Live, Damage, ::testing::ValuesIn(kFormats), name_of_case);

// Their libraries crash on some of these, in a process of their own.
const std::vector<Format> kImported{
    {"a.h5", {"a.h5"}, Finds::cuts, 0, 211},
#ifdef ATHANOR_TEST_LMDB
    {"env",
     {"env/data.mdb"},
     Finds::nothing,
     0,
     1021,
     [](const std::filesystem::path& at) {
       write_key_values(at / "data.mdb", {{"cat/1", encoded_sample(Codec::png, 30, 0).bytes},
                                          {"dog/1", encoded_sample(Codec::jpeg, 9000, 0).bytes}});
     }},
#endif
};
INSTANTIATE_TEST_SUITE_P(Imported, Damage, ::testing::ValuesIn(kImported), name_of_case);

}  // namespace athanor::damage_test
