// Tables (CSV, JSON lines) and folders of pairs: what is in them, and what is said of those that are wrong.
#include "data/formats/table.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "data/formats/open.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::table_test {

using test::write_file;

struct Opened {
  test::TempDir folder;
  std::unique_ptr<Dataset> table;
  std::vector<std::byte> scratch;

  Opened(const char* name, const std::string& text) {
    for (const char* image : {"a.png", "b.png", "c.png"}) write_file(folder / image, image);
    write_file(folder / name, text);
    table = open_samples(folder / name);
  }
  std::string image(std::int64_t row) {
    const StoredSample sample = table->fetch(row, scratch);
    return {reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()};
  }
  std::int64_t label(std::int64_t row) { return table->fetch(row, scratch).label; }
  template <class T> std::vector<T> numbers(std::int64_t row, std::size_t field = 0) {
    const StoredSample sample = table->fetch(row, scratch);
    std::vector<T> values(sample.more[field].bytes.size() / sizeof(T));
    std::memcpy(values.data(), sample.more[field].bytes.data(), sample.more[field].bytes.size());
    return values;
  }
};

TEST(Tables, OfJsonLinesHaveVectors) {
  const Opened it(
      "a.jsonl",
      "{\"image\": \"x.png\", \"ids\": [1, 2], \"eyes:points\": [[1, 2], [3.5, 4]], \"label\": 7}\n\n"
      "{\"image\": \"y.png\", \"ids\": [3, 4], \"eyes\": [[5, 6], [7, 8]], \"label\": 0}\n");
  EXPECT_EQ(it.table->size(), 2);
  EXPECT_EQ(it.table->spec().classes, 8);
  EXPECT_EQ(it.table->fields()[1], (FieldSpec{"ids", DType::i64, {2}}));
  EXPECT_EQ(it.table->fields()[2], (FieldSpec{"eyes", DType::f32, {2, 2}, FieldKind::points}));
}

TEST(Tables, KnowTheirLabelsWithoutTheirFiles) {
  const Opened it("a.csv", "image,label\nmissing.png,3\n");
  EXPECT_EQ(it.table->label(0), 3);
}

// Spreadsheets write a byte order mark, Windows ends lines with \r\n, old Macs with \r.
TEST(Tables, AreTheSameHoweverTheirLinesEnd) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    for (const char* name : {"a.csv", "a.CSV"}) {
      for (const bool last : {false, true}) {
        Opened it(name, "\xef\xbb\xbfimage,label" + end + "a.png,2" + end + end + "\"b.png\",0" +
                            (last ? end : ""));
        ASSERT_EQ(it.table->size(), 2);
        EXPECT_EQ(it.image(1), "b.png");
        EXPECT_EQ(it.label(0), 2);
      }
    }
  }
  Opened json("a.JSONL", "\xef\xbb\xbf{\"image\": \"a.png\"}\r\n{\"image\": \"b.png\"}");
  EXPECT_EQ(json.image(1), "b.png");
}

TEST(Tables, OfCsvLoseBlanksAroundCellsAndKeepQuotesWithin) {
  Opened it("a.csv", "image , label, \"x\" \na.png , 5\" disc,\t1\n \"b.png\",\" 5\"\" disc\" , 2\n");
  EXPECT_EQ(it.image(0), "a.png");
  EXPECT_EQ(it.image(1), "b.png");
  EXPECT_EQ(it.table->class_names(), (std::vector<std::string>{" 5\" disc", "5\" disc"}));
  EXPECT_EQ(it.numbers<std::int64_t>(1), (std::vector<std::int64_t>{2}));
}

TEST(Tables, LabelsAreNumbersWhereAllAre) {
  Opened floats("a.csv", "image,label\na.png,3.0\nb.png,1\n");  // as programs write a column with gaps
  EXPECT_EQ(floats.label(0), 3);
  EXPECT_EQ(floats.table->spec().classes, 4);
  EXPECT_TRUE(floats.table->class_names().empty());
  Opened names("a.csv", "image,label\na.png,404\nb.png,inf\nc.png,404\n");
  EXPECT_EQ(names.table->class_names(), (std::vector<std::string>{"404", "inf"}));
  EXPECT_EQ(names.label(2), 0);
  const Opened json("a.jsonl", "{\"image\": \"a.png\", \"label\": \"404\"}");
  EXPECT_EQ(json.table->class_names(), (std::vector<std::string>{"404"}));
}

TEST(Tables, NumberedColumnsAreOneFieldAndOtherDotsAreNames) {
  Opened it("a.csv", "image,x.0:boxes,x.1,x.2,x.3,f.mean,f.max\na.png,1,2,3,4,0.5,7\n");
  EXPECT_EQ(it.table->fields()[1], (FieldSpec{"x", DType::f32, {1, 4}, FieldKind::boxes}));
  EXPECT_EQ(it.numbers<float>(0), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(it.table->fields()[2].name, "f.mean");
  EXPECT_EQ(it.table->fields()[3], (FieldSpec{"f.max", DType::i64}));
}

class WrongTables : public testing::Test {
 protected:
  using Values = std::initializer_list<std::string_view>;

  /// Opening a file of that text is an error that names the file and the values.
  testing::AssertionResult names(const char* name, const std::string& text, Values values) {
    write_file(folder_ / name, text);
    const std::string line = test::message_of<IoError>([&] { open_samples(folder_ / name); });
    const testing::AssertionResult file = test::names(line, {name});
    return file ? test::names(line, values) : file;
  }
  testing::AssertionResult csv(const std::string& text, Values values) {
    return names("a.csv", text, values);
  }
  testing::AssertionResult json(const std::string& text, Values values) {
    return names("a.jsonl", text, values);
  }
  /// Of a second line that is {"image": "a.png", "p": VALUE}.
  testing::AssertionResult second(const char* first, const std::string& then, Values values) {
    return json(
        fmt::format("{{\"image\": \"a.png\", \"p\": {}}}\n{{\"image\": \"a.png\", \"p\": {}}}", first, then),
        values);
  }

 private:
  test::TempDir folder_;
};

TEST_F(WrongTables, LackColumnsOrRows) {
  EXPECT_TRUE(csv("", {"line 1"}));
  EXPECT_TRUE(json("", {}));
  EXPECT_TRUE(csv("image\n", {}));
  EXPECT_TRUE(csv("mask;image\ny.png\n", {"image", "mask;image"}));
  EXPECT_TRUE(json("{\"mask\": \"y.png\", \"x\": 2}", {"image", "mask", "x"}));
  EXPECT_TRUE(csv("image,mask\nx.png,y.png\nx.png,\n", {"line 3", "mask"}));
  EXPECT_TRUE(csv("image,mask\nx.png,\nx.png,y.png\n", {"line 2", "mask"}));
  EXPECT_TRUE(csv("image,mask\n,\n", {"line 2", "image"}));
  EXPECT_TRUE(csv("image,x.0,x.1\ny.png,1,\ny.png,1,\n", {"line 2", "x.1"}));
  EXPECT_TRUE(csv("image,mask\n\nx.png\n", {"line 3", "2", "line 1", "1"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\"}\n{\"image\": \"x.png\", \"p\": 1}", {"line 2", "p"}));
  EXPECT_TRUE(second("1", "1}\n{\"image\": \"a.png\"", {"line 3", "p"}));
}

TEST_F(WrongTables, HaveInvalidNames) {
  EXPECT_TRUE(csv("image,x,x.0\ny.png,3,4\n", {"line 1", "x"}));
  EXPECT_TRUE(csv("image,x,x\ny.png,3,4\n", {"line 1", "x"}));
  EXPECT_TRUE(csv("image,x,x:boxes\ny.png,3,4\n", {"line 1", "x"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": 1, \"p:values\": 2}", {"line 1", "p"}));
  EXPECT_TRUE(csv("image,\ny.png,3\n", {"line 2"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \":boxes\": 1}", {"line 1"}));
  EXPECT_TRUE(
      csv("image,gr\xf6\xdf"
          "e\ny.png,3\n",
          {"line 2", "UTF-8", "gr\\xf6\\xdfe"}));
  EXPECT_TRUE(csv("image,x.1,x.0\ny.png,3,4\n", {"line 1", "x", "x.1", "0"}));
  EXPECT_TRUE(csv("image,x.0,x.2\ny.png,3,4\n", {"line 1", "x", "x.2", "1"}));
}

TEST_F(WrongTables, DeclareAMismatchedKind) {
  EXPECT_TRUE(csv("image,x:colour\ny.png,3\n",
                  {"line 2", "x:colour", "values", "picture", "target", "mask", "boxes", "points"}));
  EXPECT_TRUE(csv("image,label:boxes\ny.png,3\n", {"line 2", "label", "values", "boxes"}));
  EXPECT_TRUE(csv("image:mask\ny.png\n", {"line 2", "image", "picture", "mask"}));
  EXPECT_TRUE(csv("image,x:mask\ny.png,3\n", {"line 2", "x", "values", "boxes", "points", "mask"}));
  EXPECT_TRUE(csv("image,x:boxes\ny.png,a.png\n", {"line 2", "x", "target", "mask", "picture", "boxes"}));
  EXPECT_TRUE(
      csv("image,x.0:boxes,x.1,x.2,x.3,x.4,x.5\ny.png,1,2,3,4,5,6\n", {"line 2", "x", "4", "[6]", "boxes"}));
  EXPECT_TRUE(csv("image,x:points\ny.png,3\n", {"line 2", "x", "2", "[]", "points"}));
  EXPECT_TRUE(
      json("{\"image\": \"x.png\", \"p:points\": [[1, 2, 3]]}", {"line 1", "p", "2", "[1, 3]", "points"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": [1, 2]}\n{\"image\": \"x.png\", \"p:points\": [1, 2]}",
                   {"line 2", "p", "values", "points"}));
}

TEST_F(WrongTables, HaveInvalidValues) {
  EXPECT_TRUE(csv("image\n3\n", {"line 2", "image", "3"}));
  EXPECT_TRUE(csv("image,x\ny.png,3\ny.png,four\n", {"line 3", "x", "four"}));
  EXPECT_TRUE(csv("image,x\ny.png,two\n", {"line 2", "x", "two"}));
  EXPECT_TRUE(csv("image,x\ny.png,nan\n", {"line 2", "x", "nan"}));
  EXPECT_TRUE(csv("image,x\ny.png,-inf\n", {"line 2", "x", "-inf"}));
  EXPECT_TRUE(csv("image,x\ny.png,0x10\n", {"line 2", "x", "0x10"}));
  EXPECT_TRUE(csv("image,x\ny.png,\"1,5\"\n", {"line 2", "x", "1,5"}));
  EXPECT_TRUE(csv("image,x\ny.png,12345678901234567890\n", {"line 2", "x", "12345678901234567890"}));
  EXPECT_TRUE(csv("image,x\ny.png,9007199254740993\n", {"line 2", "x", "2^53", "9007199254740993"}));
  EXPECT_TRUE(csv("image,x\ny.png,1e39\n", {"line 2", "x", "2^53", "1e+39"}));
  EXPECT_TRUE(csv("image,x\ny.png,a.png\ny.png,3\n", {"line 3", "x", "3"}));
  EXPECT_TRUE(csv(std::string("image\na\0.png\n", 13), {"line 2", "a\\x00.png"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": null}", {"line 1", "p", "null"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": []}", {"line 1", "p"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": [[]]}", {"line 1", "p"}));
  EXPECT_TRUE(second("[]", "\"b.png\"", {"line 1", "p"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": [[1, 2], [3]]}", {"line 1", "p"}));
  EXPECT_TRUE(second("[1, 2]", "[1]", {"line 2", "p", "[2]", "[1]"}));
}

TEST_F(WrongTables, HaveInvalidLabels) {
  EXPECT_TRUE(csv("image,label\ny.png,1\n\ny.png,-1\n", {"line 4", "label", "0", "-1"}));
  EXPECT_TRUE(csv("image,label\ny.png,0.5\n", {"line 2", "label", "0", "0.5"}));
  EXPECT_TRUE(csv("image,label\ny.png,2147483648\n", {"line 2", "label", "0", "2147483648"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"label\": [1]}", {"line 1", "label", "0", "array"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"label\": \"\"}", {"line 1", "label"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"label\": \"cat\"}\n{\"image\": \"x.png\", \"label\": 3}",
                   {"line 2", "label", "3"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"label\": 3}\n{\"image\": \"x.png\", \"label\": \"cat\"}",
                   {"line 2", "label", "cat"}));
}

TEST_F(WrongTables, AreInvalidCsvOrJson) {
  EXPECT_TRUE(csv("image,label\n\"y.png,3\nz.png,4\n", {"line 2"}));
  EXPECT_TRUE(csv("image,label\n\"y\".png,3\n", {"line 2", "'.'"}));
  EXPECT_TRUE(json("[1]", {"line 1", "array"}));
  EXPECT_TRUE(json("{\"image\": ", {"line 1", "JSON", "UTF-8"}));
  EXPECT_TRUE(json("{\n\"image\": \"x.png\"\n}", {"line 1", "JSON", "UTF-8"}));
}

// A message about them must not go down as deep as they do.
TEST_F(WrongTables, MayBeNestedArbitrarilyDeep) {
  constexpr std::size_t kDeep = 1'000'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"p\": " + deep + "}", {"line 1", "p", "array"}));
  EXPECT_TRUE(json("{\"image\": \"x.png\", \"label\": " + deep + "}", {"line 1", "label", "0", "array"}));
  EXPECT_TRUE(json("{\"image\": " + deep + ", \"p\": 1, \"q\": 2}", {"line 1", "image", "array"}));
}

TEST(TableFiles, ThatAreMissingAreNamed) {
  Opened it("a.csv", "image\na.png\nnone.png\n");
  EXPECT_ERROR(IoError, it.image(1), "none.png", "a.csv, line 3");
  Opened lines("a.jsonl", "{\"image\": \"none.png\"}\n");
  EXPECT_ERROR(IoError, lines.image(0), "none.png", "a.jsonl, line 1");
}

// Folders of pairs -----------------------------------------------------------------------------------------

class FolderPairs : public testing::Test {
 protected:
  void put(const std::string& name) { write_file(folder_ / "set" / name, "of " + name); }
  std::filesystem::path set() const { return folder_ / "set"; }
  /// What opening them says.
  std::string said() {
    return test::message_of<IoError>([&] { open_folder_pairs(set()); });
  }

  test::TempDir folder_;
};

TEST_F(FolderPairs, HaveFilesOfTheSameNames) {
  for (const char* name : {"b", "a"}) {
    put(fmt::format("images/{}.jpg", name));
    put(fmt::format("masks/{}.png", name));
    put(fmt::format("clean/{}.PNG", name));
    put(fmt::format("notes/{}.txt", name));
  }
  put("images/._a.jpg");  // what macOS leaves
  put("images/Thumbs.db");
  put(".cache/a.png");
  const auto pairs = open_samples(set());
  EXPECT_EQ(format_of(set()), "folders of images and masks or targets");
  ASSERT_EQ(pairs->size(), 2);
  ASSERT_EQ(pairs->fields().size(), 3u);
  EXPECT_EQ(pairs->fields()[1].name, "clean");
  EXPECT_EQ(pairs->fields()[2], (FieldSpec{"mask", DType::u8, {0, 0}, FieldKind::mask}));
  std::vector<std::byte> scratch;
  const StoredSample sample = pairs->fetch(1, scratch);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(sample.more[1].bytes.data()), 14), "of masks/b.png");
  EXPECT_EQ(sample.codec, Codec::jpeg);
  EXPECT_EQ(sample.more[0].codec, Codec::png) << "of a suffix in capitals";
}

TEST_F(FolderPairs, WithoutAPartnerAreNamed) {
  put("images/a.jpg");
  put("masks/a.png");
  put("images/b.jpg");
  EXPECT_TRUE(test::names(said(), {"images/b.jpg", "masks/"}));
  put("masks/b.png");
  EXPECT_EQ(said(), "");
  put("masks/c.png");
  EXPECT_TRUE(test::names(said(), {"masks/c.png", "images/"}));
}

TEST_F(FolderPairs, OfTwoFilesOrFoldersForOneNameAreRefused) {
  put("images/a.jpg");
  put("masks/a.png");
  put("images/a.png");
  EXPECT_TRUE(test::names(said(), {"images/", "a.jpg", "a.png"}));
  std::filesystem::remove(set() / "images/a.png");
  for (const char* also : {"mask", "image"}) {
    put(std::string(also) + "/a.png");
    EXPECT_TRUE(test::names(said(), {std::string(also) + "/", std::string(also) + "s/", also}));
    std::filesystem::remove_all(set() / also);
  }
  put("labels/a.png");
  EXPECT_TRUE(test::names(said(), {"labels/"}));
}

TEST_F(FolderPairs, WithoutImagesAreNotIgnored) {
  put("images/a.jpg");
  put("masks/a.tif");
  EXPECT_TRUE(test::names(said(), {"masks/", ".png", ".webp", ".jpg", ".jpeg"}));
  put("masks/a.png");
  std::filesystem::remove(set() / "images/a.jpg");
  put("images/cat/a.jpg");
  EXPECT_TRUE(test::names(said(), {"images/cat/a.jpg", "masks/"})) << "sub-folders count";
}

}  // namespace athanor::table_test
