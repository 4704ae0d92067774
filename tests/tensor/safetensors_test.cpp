#include "tensor/io/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::safetensors_test {

class Safetensors : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& name = "file.safetensors") const { return folder_ / name; }
  void write(const std::string& bytes) const { test::write_file(path(), bytes); }
  std::string read() const { return test::read_file(path()); }

  // What load() throws for a file of these bytes.
  std::string error_of(const std::string& bytes) const {
    write(bytes);
    return test::message_of<IoError>([&] { safetensors::load(path()); });
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

TEST_F(Safetensors, AFileThatBecomesShorterChangesNoTensor) {
  StateDict dict;
  dict.set("x", Tensor::from(std::vector<float>(10'000, 3), {10'000}));
  safetensors::save(path(), dict);
  const Tensor x = safetensors::load(path()).tensor("x");
  std::filesystem::resize_file(path(), 5000);
  EXPECT_EQ(x.to_vector(), std::vector<double>(10'000, 3));
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
    EXPECT_EQ(loaded.tensor("y").data<float>(), x.data<float>() + 3);  // one memory, no copies
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
  int at;                                // the byte that the error names
  std::vector<std::string_view> values;  // and what else it names
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
      {"empty file", "", 0, {"8"}},
      {"seven bytes", std::string(7, '\0'), 7, {"8"}},
      {"length zero", file_of("", "", 0), 0, {"2", "100000000"}},
      {"length one", file_of("{", "", 1), 0, {"2", "100000000", "1"}},
      {"length past the end", file_of("{}", "", 3), 0, {"3", "2"}},
      {"length over the limit", file_of("{}", "", 100'000'001), 0, {"2", "100000000", "100000001"}},
      {"length negative", file_of("{}", "", ~0ull), 0, {"2", "100000000", "18446744073709551615"}},
      {"truncated header", file_of(R"({"w":)"), 13, {"JSON"}},
      {"truncated data", one(f32, "[2]", "[0,8]", 7), 14, {"7", "w", "[0, 8]"}},
      {"bytes after the last tensor", one(f32, "[1]", "[0,4]", 5), 66, {"1"}},
      {"bytes and no tensor", file_of("{}", "x"), 10, {"1"}},
      {"not an object", file_of("[]"), 8, {"'{'"}},
      {"leading blank", file_of(" {}"), 8, {"'{'"}},
      {"two values", file_of("{}{}"), 11, {"JSON"}},
      {"zero byte after the value", file_of(std::string("{}\0x", 4)), 10, {"JSON", "UTF-8"}},
      {"bad UTF-8 in a name", file_of("{\"\xff\":1}"), 11, {"JSON", "UTF-8"}},
      {"overlong UTF-8", file_of("{\"\xc0\xaf\":1}"), 11, {"JSON", "UTF-8"}},
      {"half a surrogate pair", file_of(R"({"\ud800":1})"), 17, {"JSON", "UTF-8"}},
      {"comment", file_of("{/**/}"), 10, {"JSON"}},
      {"duplicate name", file_of("{" + w + "," + w + "}", std::string(4, '\0')), 65, {"w"}},
      {"duplicate metadata", file_of(R"({"__metadata__":{},"__metadata__":{}})"), 41, {"__metadata__"}},
      {"duplicate metadata key", file_of(R"({"__metadata__":{"a":"","a":""}})"), 35, {"'a'"}},
      {"duplicate field", file_of(R"({"w":{"dtype":"U8","dtype":"U8"}})"), 34, {"w", "dtype"}},
      {"metadata not a string", file_of(R"({"__metadata__":{"a":1}})"), 31, {"metadata", "string", "number"}},
      {"metadata an array", file_of(R"({"__metadata__":["a"]})"), 25, {"array"}},
      {"tensor is a number", file_of(R"({"w":1})"), 15, {"dtype", "shape", "data_offsets", "number"}},
      {"unknown field", file_of(R"({"w":{"stride":[1]}})"), 22, {"w", "stride"}},
      {"missing field",
       file_of(R"({"w":{"dtype":"U8","shape":[]}})"),
       38,
       {"w", "dtype", "shape", "data_offsets"}},
      {"unknown dtype", one(R"("F8_E4M3")", "[4]", "[0,4]"), 31, {"w", "dtype", "F8_E4M3"}},
      {"dtype a number", one("1", "[4]", "[0,4]"), 24, {"w", "dtype", "string", "number"}},
      {"shape a number", one(f32, "1", "[0,4]"), 38, {"w", "shape", "data_offsets", "number"}},
      {"shape negative", one(f32, "[-1]", "[0,4]"), 40, {"w", "0"}},
      {"shape fractional", one(f32, "[1.0]", "[0,4]"), 41, {"w", "0", "2^64"}},
      {"shape nested", one(f32, "[[1]]", "[0,4]"), 38, {"w", "0", "array"}},
      {"shape over 64 bits", one(f32, "[18446744073709551616]", "[0,4]"), 58, {"w", "0", "2^64"}},
      {"rank nine", one(f32, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 55, {"w", "rank", "8"}},
      {"shape product overflows to 1",
       one(f32, "[4294967297,4294967297,18446744073709551615]", "[0,4]"),
       80,
       {"w", "2^56", "4294967297"}},
      {"overflow behind a zero",
       one(f32, "[0,9223372036854775807,9223372036854775807]", "[0,0]", 0),
       79,
       {"w", "2^56", "9223372036854775807"}},
      {"bytes do not fit the shape", one(f32, "[2]", "[0,4]"), 14, {"w", "8", "[2] f32", "[0, 4]"}},
      {"scalar with two values", one(f32, "[]", "[0,8]", 8), 14, {"w", "4", "[] f32", "[0, 8]"}},
      {"offsets reversed", one(f32, "[1]", "[4,0]"), 14, {"w", "4", "[4, 0]"}},
      {"offsets past the end", one(f32, "[1]", "[4,8]"), 14, {"w", "4", "[4, 8]"}},
      {"offsets huge",
       one(f32, "[1]", "[18446744073709551612,18446744073709551615]"),
       14,
       {"w", "4", "[18446744073709551612, 18446744073709551615]"}},
      {"one offset", one(f32, "[1]", "[0]"), 58, {"w", "offsets", "1"}},
      {"three offsets", one(f32, "[1]", "[0,4,8]"), 62, {"w", "offsets"}},
      {"gap at the start", one(f32, "[1]", "[4,8]", 8), 66, {"w", "0", "4"}},
      {"hole in the middle",
       file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],)"
               R"("data_offsets":[2,3]}})",
               "abc"),
       115,
       {"b", "1", "2"}},
      {"overlap",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],)"
               R"("data_offsets":[1,3]}})",
               "abc"),
       114,
       {"b", "2", "1"}},
      {"two names for the same bytes",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],)"
               R"("data_offsets":[0,2]}})",
               "ab"),
       113,
       {"b", "2", "0"}},
      {"bool of two",
       file_of(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02"),
       64,  // 8 + 55 of header + 1
       {"'a'", "bool", "2"}},
      {"a million brackets", file_of(R"({"w":)" + std::string(1'000'000, '[')), 14, {"array"}},
      {"a million objects in metadata",
       [] {
         std::string deep = R"({"__metadata__":)";
         for (int i = 0; i < 1'000'000; ++i) deep += R"({"a":)";
         return file_of(deep);
       }(),
       30,
       {"metadata", "object"}},
      {"empty name", file_of(R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), 13, {"''"}},
      {"own key without parts",
       file_of(R"({"__metadata__":{"athanor:":""}})"),
       8,
       {"athanor:POSITION:KIND:NAME", "'athanor:'"}},
      {"own key with a bad number",
       file_of(R"({"__metadata__":{"athanor:0:i64:a":"1x"}})"),
       8,
       {"athanor:0:i64:a", "1x"}},
      {"own key over 64 bits",
       file_of(R"({"__metadata__":{"athanor:0:i64:a":"9223372036854775808"}})"),
       8,
       {"athanor:0:i64:a", "9223372036854775808"}},
      {"own key out of place",
       file_of(R"({"__metadata__":{"athanor:1:i64:a":"1"}})"),
       8,
       {"athanor:POSITION:KIND:NAME", "1"}},
      {"own key twice in a place",
       file_of(R"({"__metadata__":{"athanor:0:i64:a":"1","athanor:0:i64:b":"1"}})"),
       8,
       {"athanor:POSITION:KIND:NAME", "2", "0"}},
      {"own key of a taken name",
       file_of(
           R"({"__metadata__":{"athanor:0:i64:w":"1"},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       53,
       {"'w'"}},
  };
}

TEST_F(Safetensors, NamesFromAFileAreShownInOneLine) {
  for (const char* const header : {R"({"a\nb":{"shape":[1]}})", R"({"a":{"x\ny":1}})",
                                   R"({"a":{"dtype":"\nF"}})", R"({"__metadata__":{"athanor:\n":"\n"}})"}) {
    const std::string error = error_of(file_of(header, ""));
    EXPECT_NE(error.find("\\n"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST_F(Safetensors, HostileFilesAreNamedErrors) {
  for (const Hostile& file : hostile_files()) {
    SCOPED_TRACE(file.what);
    const std::string error = error_of(file.bytes);
    EXPECT_TRUE(test::names(error, {path().string(), std::to_string(file.at)}));
    EXPECT_TRUE(test::names(error, file.values));
    EXPECT_LT(error.size(), 700u);
    EXPECT_EQ(error.find('\n'), std::string::npos) << "one line";
  }
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

}  // namespace athanor::safetensors_test
