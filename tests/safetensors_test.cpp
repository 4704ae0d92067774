#include "tensor/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace athanor {
namespace {

class Safetensors : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& name = "file.safetensors") const { return folder_ / name; }
  void write(const std::string& bytes) const { test::write_file(path(), bytes); }
  std::string read() const { return test::read_file(path()); }

  // What load() throws for a file of these bytes.
  std::string error_of(const std::string& bytes) const {
    write(bytes);
    try {
      safetensors::load(path());
    } catch (const IoError& error) {
      return error.what();
    }
    return "no error";
  }

  test::TempDir folder_;
};

std::string file_of(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return file_of(header, data, header.size());
}

StateDict sample() {
  StateDict dict;
  dict.set("u8", Tensor::from(std::vector<std::uint8_t>{1, 2, 255}, {3}));
  dict.set("epoch", std::int64_t{-3});
  dict.set("f64", Tensor::from(std::vector<double>{0.1, -1e300}, {2, 1}));
  dict.set("f32", Tensor::from(std::vector<float>{1.5f, -2.0f, 3e-40f, 4, 5, 6}, {2, 3}));
  dict.set("f16", Tensor::from(std::vector<Half>{Half(1.0f), Half(-2.5f)}, {2}));
  dict.set("bf16", Tensor::from(std::vector<BFloat16>{BFloat16(3.0f)}, {1, 1, 1}));
  dict.set("i64", Tensor::from(std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}, {}));
  dict.set("i32", Tensor::from(std::vector<std::int32_t>{-7, 7}, {2}));
  const bool flags[] = {true, false, true};
  dict.set("bool", Tensor::from(std::span<const bool>(flags), {3}));
  dict.set("empty", Tensor::zeros({0, 4}));
  dict.set("rate", 0.1);
  dict.set("note", std::string("line\n\"quoted\" \xc3\xa9"));
  return dict;
}

void expect_equal(const StateDict& got, const StateDict& want) {
  ASSERT_EQ(got.names(), want.names());
  for (const StateDict::Entry& entry : want) {
    const StateDict::Value& value = *got.find(entry.name);
    ASSERT_EQ(value.index(), entry.value.index()) << entry.name;
    if (const auto* tensor = std::get_if<Tensor>(&entry.value)) {
      const Tensor& other = std::get<Tensor>(value);
      EXPECT_EQ(other.dtype(), tensor->dtype()) << entry.name;
      EXPECT_EQ(other.shape(), tensor->shape()) << entry.name;
      EXPECT_EQ(other.to_vector(), tensor->to_vector()) << entry.name;
    } else if (entry.name != "nan") {
      EXPECT_TRUE(std::visit(
          [&]<class T>(const T& mine) {
            if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, ShardedTensor>)
              return false;
            else
              return mine == std::get<T>(entry.value);
          },
          value))
          << entry.name;
    }
  }
}

TEST_F(Safetensors, EveryDtypeAndKindComesBackInOrder) {
  safetensors::save(path(), sample(), {{"model", "lenet5"}});
  safetensors::Metadata metadata;
  expect_equal(safetensors::load(path(), &metadata), sample());
  EXPECT_EQ(metadata, (safetensors::Metadata{{"model", "lenet5"}}));
}

TEST_F(Safetensors, RealNumbersComeBackExactly) {
  StateDict dict;
  const double values[] = {0.1, 1e-310, -0.0, std::numeric_limits<double>::max(), INFINITY, -INFINITY};
  for (const double value : values) dict.set(fmt::format("v{}", value), value);
  dict.set("nan", std::nan(""));
  safetensors::save(path(), dict);
  const StateDict back = safetensors::load(path());
  expect_equal(back, dict);
  EXPECT_TRUE(std::isnan(back.real("nan")));
  EXPECT_TRUE(std::signbit(back.real("v-0")));
}

TEST_F(Safetensors, EmptyDictionaryComesBack) {
  safetensors::save(path(), {});
  EXPECT_TRUE(safetensors::load(path()).empty());
}

TEST_F(Safetensors, SameEntriesGiveSameBytes) {
  safetensors::save(path(), sample(), {{"b", "1"}, {"a", "2"}});
  const std::string first = read();
  safetensors::save(path(), sample(), {{"a", "2"}, {"b", "1"}});
  EXPECT_EQ(read(), first);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++files;
  EXPECT_EQ(files, 1u);  // no temporary file stays
}

TEST_F(Safetensors, StridedTensorIsSavedDense) {
  StateDict dict;
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  dict.set("x", x.view_as_strided({3, 2}, {1, 3}, 0));
  safetensors::save(path(), dict);
  EXPECT_EQ(safetensors::load(path()).tensor("x").to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST_F(Safetensors, TensorsAreViewsOfTheFileAndOutliveIt) {
  StateDict dict;
  dict.set("x", Tensor::from(std::vector<float>{1, 2, 3}, {3}));
  dict.set("y", Tensor::from(std::vector<float>{4}, {1}));
  safetensors::save(path(), dict);
  Tensor x;
  {
    const StateDict loaded = safetensors::load(path());
    x = loaded.tensor("x");
    EXPECT_EQ(loaded.tensor("y").data<float>(), x.data<float>() + 3);  // one mapping, no copies
  }
  const std::string before = read();
  x.data<float>()[0] = 9;  // private to this process
  EXPECT_EQ(read(), before);
  std::filesystem::remove(path());
  EXPECT_EQ(x.to_vector(), (std::vector<double>{9, 2, 3}));
}

TEST_F(Safetensors, MisalignedTensorIsCopied) {
  const float value = 2.5f;
  std::string data("\x07", 1);
  data.append(reinterpret_cast<const char*>(&value), 4);
  write(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                data));
  const StateDict dict = safetensors::load(path());
  const Tensor& b = dict.tensor("b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.raw_data()) % 4, 0u);
  EXPECT_EQ(b.item(), 2.5);
  EXPECT_EQ(dict.tensor("a").item(), 7);
}

TEST_F(Safetensors, TensorBytesAreAligned) {
  safetensors::save(path(), sample());
  for (const StateDict::Entry& entry : safetensors::load(path())) {
    if (const auto* tensor = std::get_if<Tensor>(&entry.value)) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->raw_data()) % size_of(tensor->dtype()), 0u);
    }
  }
}

TEST_F(Safetensors, FailedSaveLeavesTheOldFile) {
  safetensors::save(path(), sample());
  StateDict bad;
  bad.set("text", std::string("\xff"));
  EXPECT_THROW(safetensors::save(path(), bad), ArgumentError);
  EXPECT_THROW(safetensors::save(path(), {}, {{"athanor:x", ""}}), ArgumentError);
  StateDict reserved;
  reserved.set("__metadata__", Tensor::zeros({1}));
  EXPECT_THROW(safetensors::save(path(), reserved), ArgumentError);
  EXPECT_THROW(safetensors::save(path("missing/folder/file"), sample()), IoError);
  expect_equal(safetensors::load(path()), sample());
}

TEST_F(Safetensors, MissingFileAndFolderAreNamed) {
  EXPECT_THROW(safetensors::load(path("none")), IoError);
  EXPECT_THROW(safetensors::load(folder_.path()), IoError);
}

// Hostile files --------------------------------------------------------------------------------------------

struct Hostile {
  const char* what;
  std::string bytes;
  const char* message;  // a part of it
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::size_t data_bytes = 4) {
  return file_of(fmt::format(R"({{"w":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
                 std::string(data_bytes, '\0'));
}

std::vector<Hostile> hostile_files() {
  const std::string f32 = R"("F32")";
  const std::string w = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  return {
      {"empty file", "", "expected 8 bytes of header length"},
      {"seven bytes", std::string(7, '\0'), "expected 8 bytes of header length"},
      {"length zero", file_of("", "", 0), "expected a header length from 2 to"},
      {"length one", file_of("{", "", 1), "expected a header length from 2 to"},
      {"length past the end", file_of("{}", "", 3), "file ends 2 bytes after"},
      {"length over the limit", file_of("{}", "", 100'000'001),
       "expected a header length from 2 to 100000000"},
      {"length negative", file_of("{}", "", ~0ull), "expected a header length from 2 to"},
      {"truncated header", file_of(R"({"w":)"), "expected a JSON header"},
      {"truncated data", one(f32, "[2]", "[0,8]", 7), "within the 7 data bytes"},
      {"bytes after the last tensor", one(f32, "[1]", "[0,4]", 5), "1 bytes follow"},
      {"bytes and no tensor", file_of("{}", "x"), "1 bytes follow"},
      {"not an object", file_of("[]"), "begins with '{'"},
      {"leading blank", file_of(" {}"), "begins with '{'"},
      {"two values", file_of("{}{}"), "expected a JSON header"},
      {"zero byte after the value", file_of(std::string("{}\0x", 4)), "zero byte"},
      {"bad UTF-8 in a name", file_of("{\"\xff\":1}"), "expected a JSON header in UTF-8"},
      {"overlong UTF-8", file_of("{\"\xc0\xaf\":1}"), "expected a JSON header in UTF-8"},
      {"half a surrogate pair", file_of(R"({"\ud800":1})"), "expected a JSON header in UTF-8"},
      {"comment", file_of("{/**/}"), "expected a JSON header"},
      {"duplicate name", file_of("{" + w + "," + w + "}", std::string(4, '\0')), "each name once"},
      {"duplicate metadata", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "each name once"},
      {"duplicate metadata key", file_of(R"({"__metadata__":{"a":"","a":""}})"), "each metadata key once"},
      {"duplicate field", file_of(R"({"w":{"dtype":"U8","dtype":"U8"}})"), "each field once"},
      {"metadata not a string", file_of(R"({"__metadata__":{"a":1}})"), "expected a metadata string"},
      {"metadata an array", file_of(R"({"__metadata__":["a"]})"), "but got an array"},
      {"tensor is a number", file_of(R"({"w":1})"), "expected an object with dtype"},
      {"unknown field", file_of(R"({"w":{"stride":[1]}})"), "got field 'stride'"},
      {"missing field", file_of(R"({"w":{"dtype":"U8","shape":[]}})"),
       "expected dtype, shape and data_offsets"},
      {"unknown dtype", one(R"("F8_E4M3")", "[4]", "[0,4]"), "but got 'F8_E4M3'"},
      {"dtype a number", one("1", "[4]", "[0,4]"), "dtype to be a string"},
      {"shape a number", one(f32, "1", "[0,4]"), "shape and data_offsets to be arrays"},
      {"shape negative", one(f32, "[-1]", "[0,4]"), "expected an integer >= 0"},
      {"shape fractional", one(f32, "[1.0]", "[0,4]"), "expected an integer >= 0"},
      {"shape nested", one(f32, "[[1]]", "[0,4]"), "expected an integer >= 0"},
      {"shape over 64 bits", one(f32, "[18446744073709551616]", "[0,4]"), "expected an integer >= 0"},
      {"rank nine", one(f32, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "rank of at most 8"},
      {"shape product overflows to 1", one(f32, "[4294967297,4294967297,18446744073709551615]", "[0,4]"),
       "less than 2^56 elements"},
      {"overflow behind a zero", one(f32, "[0,9223372036854775807,9223372036854775807]", "[0,0]", 0),
       "less than 2^56 elements"},
      {"bytes do not fit the shape", one(f32, "[2]", "[0,4]"), "expected 8 bytes"},
      {"scalar with two values", one(f32, "[]", "[0,8]", 8), "expected 4 bytes"},
      {"offsets reversed", one(f32, "[1]", "[4,0]"), "within the 4 data bytes"},
      {"offsets past the end", one(f32, "[1]", "[4,8]"), "within the 4 data bytes"},
      {"offsets huge", one(f32, "[1]", "[18446744073709551612,18446744073709551615]"),
       "within the 4 data bytes"},
      {"one offset", one(f32, "[1]", "[0]"), "expected two offsets"},
      {"three offsets", one(f32, "[1]", "[0,4,8]"), "expected two offsets"},
      {"gap at the start", one(f32, "[1]", "[4,8]", 8), "a gap"},
      {"hole in the middle",
       file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],)"
               R"("data_offsets":[2,3]}})",
               "abc"),
       "a gap"},
      {"overlap",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],)"
               R"("data_offsets":[1,3]}})",
               "abc"),
       "an overlap"},
      {"two names for the same bytes",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],)"
               R"("data_offsets":[0,2]}})",
               "ab"),
       "an overlap"},
      {"bool of two", file_of(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02"),
       "expected a bool of 0 or 1"},
      {"a million brackets", file_of(R"({"w":)" + std::string(1'000'000, '[')), "but got an array"},
      {"a million objects in metadata",
       [] {
         std::string deep = R"({"__metadata__":)";
         for (int i = 0; i < 1'000'000; ++i) deep += R"({"a":)";
         return file_of(deep);
       }(),
       "but got an object"},
      {"empty name", file_of(R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       "unique and not empty"},
      {"own key without parts", file_of(R"({"__metadata__":{"athanor:":""}})"), "athanor:POSITION:KIND:NAME"},
      {"own key with a bad number", file_of(R"({"__metadata__":{"athanor:0:i64:a":"1x"}})"), "'1x'"},
      {"own key over 64 bits", file_of(R"({"__metadata__":{"athanor:0:i64:a":"9223372036854775808"}})"),
       "athanor:POSITION"},
      {"own key out of place", file_of(R"({"__metadata__":{"athanor:1:i64:a":"1"}})"), "below 1, but got 1"},
      {"own key twice in a place",
       file_of(R"({"__metadata__":{"athanor:0:i64:a":"1","athanor:0:i64:b":"1"}})"), "once and below 2"},
      {"own key of a taken name",
       file_of(
           R"({"__metadata__":{"athanor:0:i64:w":"1"},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       "unique and not empty"},
  };
}

TEST_F(Safetensors, HostileFilesAreNamedErrors) {
  for (const Hostile& file : hostile_files()) {
    const std::string error = error_of(file.bytes);
    EXPECT_NE(error.find(file.message), std::string::npos) << file.what << ": " << error;
    EXPECT_NE(error.find(path().string() + ": at byte "), std::string::npos) << file.what << ": " << error;
    EXPECT_LT(error.size(), 700u) << file.what;
  }
}

TEST_F(Safetensors, ErrorsNameTheByte) {
  const std::string error =
      error_of(file_of(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02"));
  EXPECT_NE(error.find("at byte 64:"), std::string::npos) << error;  // 8 + 55 of header + 1
}

TEST_F(Safetensors, UnusualButValidFilesLoad) {
  // Blanks after the header, data order unlike header order, empty tensors between, fields in any order.
  write(
      file_of("{ \"b\" :{\"data_offsets\":[1,2],\"shape\":[1],\"dtype\":\"U8\"},"
              R"("e":{"dtype":"F64","shape":[0,3],"data_offsets":[1,1]},)"
              "\"\\u00e9\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}   ",
              "\x05\x06"));
  const StateDict dict = safetensors::load(path());
  EXPECT_EQ(dict.names(), (std::vector<std::string>{"b", "e", "\xc3\xa9"}));
  EXPECT_EQ(dict.tensor("b").item(), 6);
  EXPECT_EQ(dict.tensor("\xc3\xa9").item(), 5);
  EXPECT_EQ(dict.tensor("e").shape(), Shape({0, 3}));
}

TEST_F(Safetensors, MutatedFilesLoadOrFailCleanly) {
  safetensors::save(path(), sample(), {{"model", "x"}});
  const std::string valid = read();
  const std::size_t header = 8 + static_cast<std::size_t>(static_cast<unsigned char>(valid[8 - 8])) +
                             256 * static_cast<std::size_t>(static_cast<unsigned char>(valid[1]));
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::string alphabet = "{}[],:\"\\0123456789-.eE\x00\xff truenlF";
  int loaded = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = valid;
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t at = below(std::min(bytes.size(), header));
      switch (below(5)) {
        case 0: bytes[at] = static_cast<char>(below(256)); break;
        case 1: bytes[at] = alphabet[below(alphabet.size())]; break;
        case 2: bytes.erase(at, 1 + below(8)); break;
        case 3: bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16))); break;
        case 4: bytes.resize(1 + below(bytes.size())); break;
      }
    }
    write(bytes);
    try {
      for (const StateDict::Entry& entry : safetensors::load(path())) {
        if (const auto* tensor = std::get_if<Tensor>(&entry.value))
          tensor->to_vector();  // touches every byte
      }
      ++loaded;
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(loaded, 20);  // the mutations are not all trivially broken
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace athanor
