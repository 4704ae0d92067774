// Tables (CSV, JSON lines) and folders of pairs: what is in them, and what is said of those that are wrong.
#include "data/formats/table.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "data/formats/open.h"
#include "support/says.h"
#include "support/temp_dir.h"
#include "tensor/error.h"

namespace athanor {
namespace {

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
  /// What opening a file of that text says, behind the file's name.
  std::string said(const char* name, const std::string& text) {
    write_file(folder_ / name, text);
    const std::string line = test::message_of<IoError>([&] { open_samples(folder_ / name); });
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const std::size_t at = line.find(name);
    return at == std::string::npos ? line : line.substr(at + std::strlen(name) + 2);
  }
  std::string csv(const std::string& text) { return said("a.csv", text); }
  std::string json(const std::string& text) { return said("a.jsonl", text); }
  /// Of a second line that is {"image": "a.png", "p": VALUE}.
  std::string second(const char* first, const std::string& then) {
    return json(
        fmt::format("{{\"image\": \"a.png\", \"p\": {}}}\n{{\"image\": \"a.png\", \"p\": {}}}", first, then));
  }

 private:
  test::TempDir folder_;
};

TEST_F(WrongTables, LackColumnsOrRows) {
  EXPECT_EQ(csv(""), "line 1: the file must start with a row of names, but is empty");
  EXPECT_EQ(json(""), "the table must have at least one sample, but has none");
  EXPECT_EQ(csv("image\n"), "the table must have at least one sample, but has none");
  EXPECT_EQ(csv("mask;image\ny.png\n"), "the first row must have a field 'image', but has 'mask;image'");
  EXPECT_EQ(json("{\"mask\": \"y.png\", \"x\": 2}"),
            "the first row must have a field 'image', but has 'mask', 'x'");
  EXPECT_EQ(csv("image,mask\nx.png,y.png\nx.png,\n"), "line 3: field 'mask' is missing");
  EXPECT_EQ(csv("image,mask\nx.png,\nx.png,y.png\n"), "line 2: field 'mask' is missing");
  EXPECT_EQ(csv("image,mask\n,\n"), "line 2: field 'image' is missing");
  EXPECT_EQ(csv("image,x.0,x.1\ny.png,1,\ny.png,1,\n"), "line 2: field 'x.1' is missing");
  EXPECT_EQ(csv("image,mask\n\nx.png\n"), "line 3: must have 2 columns, like line 1, but has 1");
  EXPECT_EQ(json("{\"image\": \"x.png\"}\n{\"image\": \"x.png\", \"p\": 1}"),
            "line 2: field 'p' does not appear in the previous lines");
  EXPECT_EQ(second("1", "1}\n{\"image\": \"a.png\""), "line 3: field 'p' is missing");
}

TEST_F(WrongTables, HaveInvalidNames) {
  EXPECT_EQ(csv("image,x,x.0\ny.png,3,4\n"), "line 1: column 'x' appears twice");
  EXPECT_EQ(csv("image,x,x\ny.png,3,4\n"), "line 1: column 'x' appears twice");
  EXPECT_EQ(csv("image,x,x:boxes\ny.png,3,4\n"), "line 1: column 'x' appears twice");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": 1, \"p:values\": 2}"), "line 1: field 'p' appears twice");
  EXPECT_EQ(csv("image,\ny.png,3\n"), "line 2: every field must have a name, but one has none");
  EXPECT_EQ(json("{\"image\": \"x.png\", \":boxes\": 1}"),
            "line 1: every field must have a name, but one has none");
  EXPECT_EQ(csv("image,gr\xf6\xdf"
                "e\ny.png,3\n"),
            "line 2: a field name must be UTF-8 without control characters, but is 'gr\\xf6\\xdfe'");
  EXPECT_EQ(csv("image,x.1,x.0\ny.png,3,4\n"),
            "line 1: the columns of 'x' must be x.0, x.1, ... in order, but x.1 comes instead of number 0");
  EXPECT_EQ(csv("image,x.0,x.2\ny.png,3,4\n"),
            "line 1: the columns of 'x' must be x.0, x.1, ... in order, but x.2 comes instead of number 1");
}

TEST_F(WrongTables, DeclareAMismatchedKind) {
  EXPECT_EQ(csv("image,x:colour\ny.png,3\n"),
            "line 2: the kind of 'x:colour' must be values, picture, target, mask, boxes or points");
  EXPECT_EQ(csv("image,label:boxes\ny.png,3\n"),
            "line 2: field 'label' must be values, but is declared as boxes");
  EXPECT_EQ(csv("image:mask\ny.png\n"), "line 2: field 'image' must be picture, but is declared as mask");
  EXPECT_EQ(csv("image,x:mask\ny.png,3\n"),
            "line 2: field 'x' must be values or boxes or points, but is declared as mask");
  EXPECT_EQ(csv("image,x:boxes\ny.png,a.png\n"),
            "line 2: field 'x' must be target or mask or picture, but is declared as boxes");
  const std::string six = "line 2: field 'x' must be boxes of 4 numbers each, but has [6]";
  EXPECT_EQ(csv("image,x.0:boxes,x.1,x.2,x.3,x.4,x.5\ny.png,1,2,3,4,5,6\n"), six);
  EXPECT_EQ(csv("image,x:points\ny.png,3\n"),
            "line 2: field 'x' must be points of 2 numbers each, but has []");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p:points\": [[1, 2, 3]]}"),
            "line 1: field 'p' must be points of 2 numbers each, but has [1, 3]");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": [1, 2]}\n{\"image\": \"x.png\", \"p:points\": [1, 2]}"),
            "line 2: field 'p' must be values, as in the previous line, but is declared as points");
}

TEST_F(WrongTables, HaveInvalidValues) {
  EXPECT_EQ(csv("image\n3\n"), "line 2: field 'image' must be the name of a file, but is 3");
  EXPECT_EQ(csv("image,x\ny.png,3\ny.png,four\n"),
            "line 3: field 'x' must contain numbers only, but has \"four\"");
  const std::string no_file = "must be a number or a file that ends in .png, .webp, .jpg or .jpeg, but is ";
  EXPECT_EQ(csv("image,x\ny.png,two\n"), "line 2: field 'x' " + no_file + "'two'");
  EXPECT_EQ(csv("image,x\ny.png,nan\n"), "line 2: field 'x' " + no_file + "'nan'");
  EXPECT_EQ(csv("image,x\ny.png,-inf\n"), "line 2: field 'x' " + no_file + "'-inf'");
  EXPECT_EQ(csv("image,x\ny.png,0x10\n"), "line 2: field 'x' " + no_file + "'0x10'");
  EXPECT_EQ(csv("image,x\ny.png,\"1,5\"\n"), "line 2: field 'x' " + no_file + "'1,5'");
  EXPECT_EQ(csv("image,x\ny.png,12345678901234567890\n"),
            "line 2: field 'x' " + no_file + "'12345678901234567890'");
  EXPECT_EQ(csv("image,x\ny.png,9007199254740993\n"),
            "line 2: field 'x' must contain integers below 2^53 or f32 numbers, but has 9007199254740993");
  EXPECT_EQ(csv("image,x\ny.png,1e39\n"),
            "line 2: field 'x' must contain integers below 2^53 or f32 numbers, but has 1e+39");
  EXPECT_EQ(csv("image,x\ny.png,a.png\ny.png,3\n"), "line 3: field 'x' must be the name of a file, but is 3");
  EXPECT_EQ(csv(std::string("image\na\0.png\n", 13)),
            "line 2: a file name must not contain control characters, but is 'a\\x00.png'");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": null}"),
            "line 1: field 'p' must contain numbers only, but has null");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": []}"),
            "line 1: field 'p' must have at least one number, but has none");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": [[]]}"),
            "line 1: field 'p' must have at least one number, but has none");
  EXPECT_EQ(second("[]", "\"b.png\""), "line 1: field 'p' must have at least one number, but has none");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": [[1, 2], [3]]}"),
            "line 1: field 'p' must have lists of equal length");
  EXPECT_EQ(second("[1, 2]", "[1]"),
            "line 2: field 'p' must have numbers of shape [2], as in the previous line, but has [1]");
}

TEST_F(WrongTables, HaveInvalidLabels) {
  const std::string must = "field 'label' must be a whole number >= 0 or a class name, but is ";
  EXPECT_EQ(csv("image,label\ny.png,1\n\ny.png,-1\n"), "line 4: " + must + "-1");
  EXPECT_EQ(csv("image,label\ny.png,0.5\n"), "line 2: " + must + "0.5");
  EXPECT_EQ(csv("image,label\ny.png,2147483648\n"), "line 2: " + must + "2147483648");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"label\": [1]}"), "line 1: " + must + "array");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"label\": \"\"}"), "line 1: field 'label' is missing");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"label\": \"cat\"}\n{\"image\": \"x.png\", \"label\": 3}"),
            "line 2: field 'label' must be a class name, as in the previous line, but is 3");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"label\": 3}\n{\"image\": \"x.png\", \"label\": \"cat\"}"),
            "line 2: field 'label' must be a number, as in the previous line, but is \"cat\"");
}

TEST_F(WrongTables, AreInvalidCsvOrJson) {
  EXPECT_EQ(csv("image,label\n\"y.png,3\nz.png,4\n"),
            "line 2: a quoted cell must end with a quote, but the file ends");
  EXPECT_EQ(csv("image,label\n\"y\".png,3\n"),
            "line 2: a comma must follow a quoted cell, but '.' follows; double the quotes inside a cell");
  EXPECT_EQ(json("[1]"), "line 1: must be an object, but is array");
  EXPECT_EQ(json("{\"image\": "), "line 1: must be one JSON object in UTF-8, but is not");
  EXPECT_EQ(json("{\n\"image\": \"x.png\"\n}"), "line 1: must be one JSON object in UTF-8, but is not");
}

// A message about them must not go down as deep as they do.
TEST_F(WrongTables, MayBeNestedArbitrarilyDeep) {
  constexpr std::size_t kDeep = 1'000'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  EXPECT_EQ(json("{\"image\": \"x.png\", \"p\": " + deep + "}"),
            "line 1: field 'p' must contain numbers only, but has array");
  EXPECT_EQ(json("{\"image\": \"x.png\", \"label\": " + deep + "}"),
            "line 1: field 'label' must be a whole number >= 0 or a class name, but is array");
}

TEST(TableFiles, ThatAreMissingAreNamed) {
  Opened it("a.csv", "image\nnone.png\n");
  const std::string line = test::message_of<IoError>([&] { it.image(0); });
  EXPECT_NE(line.find("none.png: cannot be read: No such file"), std::string::npos) << line;
}

// Folders of pairs -----------------------------------------------------------------------------------------

class FolderPairs : public testing::Test {
 protected:
  void put(const std::string& name) { write_file(folder_ / "set" / name, "of " + name); }
  std::filesystem::path set() const { return folder_ / "set"; }
  /// What opening them says behind "folder pairs: FOLDER".
  std::string said() {
    const std::string line = test::message_of<IoError>([&] { open_folder_pairs(set()); });
    return line.substr(std::min(line.size(), line.find("set") + 5));
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
  EXPECT_EQ(said(), "images/b.jpg must have a file of the same name in masks/, but has none");
  put("masks/b.png");
  EXPECT_EQ(said(), "");
  put("masks/c.png");
  EXPECT_EQ(said(), "masks/c.png must have a file of the same name in images/, but has none");
}

TEST_F(FolderPairs, OfTwoFilesOrFoldersForOneNameAreRefused) {
  put("images/a.jpg");
  put("masks/a.png");
  put("images/a.png");
  EXPECT_EQ(said(), "images/ must have one file per name, but has a.jpg and a.png");
  std::filesystem::remove(set() / "images/a.png");
  for (const char* also : {"mask", "image"}) {
    put(std::string(also) + "/a.png");
    EXPECT_EQ(said(), fmt::format("each folder must be a separate field, but {}/ and {}s/ are both '{}'",
                                  also, also, also));
    std::filesystem::remove_all(set() / also);
  }
  put("labels/a.png");
  EXPECT_EQ(said(), "labels/ must not contain images: a label is a class; are they masks or targets?");
}

TEST_F(FolderPairs, WithoutImagesAreNotIgnored) {
  put("images/a.jpg");
  put("masks/a.tif");
  EXPECT_EQ(said(), "masks/ must contain .png, .webp, .jpg or .jpeg files, but has none");
  put("masks/a.png");
  std::filesystem::remove(set() / "images/a.jpg");
  put("images/cat/a.jpg");
  EXPECT_EQ(said(), "images/ must contain .png, .webp, .jpg or .jpeg files, but has none");
}

}  // namespace
}  // namespace athanor
