// Tables whose labels are several classes of an image, or numbers: which columns they are, and what is said
// of those that are wrong.
#include <cmath>

#include <gtest/gtest.h>

#include "data/check_labels.h"
#include "data/formats/open.h"
#include "data/formats/table.h"
#include "data/in_memory.h"
#include "data/relabelled.h"
#include "data/stratified_split.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::label_columns_test {

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;
using test::write_file;

constexpr LabelKind kSeveral = LabelKind::multilabel, kNumbers = LabelKind::values;

class LabelColumns : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const char* name, const std::string& text, const OpenOptions& options) {
    write_file(folder_ / name, text);
    return open_samples(folder_ / name, options);
  }
  std::unique_ptr<Dataset> csv(const std::string& text, LabelKind kind, const std::string& fields = "",
                               const Names& names = {}) {
    return open("a.csv", text, {.fields = fields, .labels = kind, .label_names = names});
  }
  std::string said(const std::string& text, LabelKind kind, const std::string& fields = "",
                   const Names& names = {}) {
    return test::message_of<IoError>([&] { csv(text, kind, fields, names); });
  }

  test::TempDir folder_;
};

TEST_F(LabelColumns, AreOneForEachClass) {
  const auto table = csv("image,cat,dog,hen\na.png,1,0,1\nb.png,0,0,1\n", kSeveral);
  ASSERT_EQ(table->fields().size(), 2u);
  EXPECT_EQ(table->fields()[1], (FieldSpec{"labels", DType::f32, {3}}));
  EXPECT_EQ(table->spec().classes, 3);
  EXPECT_EQ(table->class_names(), (Names{"cat", "dog", "hen"}));
  EXPECT_EQ(table->numbers("labels"), (Numbers{1, 0, 1, 0, 0, 1}));
  EXPECT_TRUE(table->where(1).ends_with("b.png"));
  check_labels(*table, kSeveral, "--train");
}

TEST_F(LabelColumns, ListTheNamesOfAllClasses) {
  for (const auto& [both, one] :
       {std::pair{"dog; cat", "cat"}, {"dog|cat|", "cat"}, {"\"dog, cat\"", "cat "}, {"dog  cat", "cat"}}) {
    const auto table = csv(fmt::format("image,label\na.png,{}\nb.png,{}\nc.png,\n", both, one), kSeveral);
    EXPECT_EQ(table->class_names(), (Names{"cat", "dog"})) << both;
    EXPECT_EQ(table->numbers("labels"), (Numbers{1, 1, 1, 0, 0, 0})) << both;
  }
  const Names with_blanks{"cat", "guinea pig"};
  const auto pets = csv("image,label\na.png,guinea pig\n", kSeveral, "", with_blanks);
  EXPECT_EQ(pets->class_names(), with_blanks);
  EXPECT_EQ(pets->numbers("labels"), (Numbers{0, 1}));
  const auto json = open("a.jsonl",
                         "{\"image\": \"a.png\", \"labels\": [\"hen\", \"cat\"]}\n"
                         "{\"image\": \"b.png\", \"labels\": []}",
                         {.labels = kSeveral});
  EXPECT_EQ(json->class_names(), (Names{"cat", "hen"}));
  EXPECT_EQ(json->numbers("labels"), (Numbers{1, 1, 0, 0}));
  const auto flags = open("a.jsonl",
                          "{\"image\": \"a.png\", \"labels\": [0, 1]}\n"
                          "{\"image\": \"b.png\", \"labels\": [1, 1]}",
                          {.labels = kSeveral});
  EXPECT_TRUE(flags->class_names().empty());
  EXPECT_EQ(flags->numbers("labels"), (Numbers{0, 1, 1, 1}));
}

TEST_F(LabelColumns, AreThoseThatFieldsNames) {
  const auto table = csv("id,file,age,height,note\n7,a.png,30,1.75,tall\n8,b.png,-4.5,2,\n", kNumbers,
                         "image=file,label=height,age");
  EXPECT_EQ(table->class_names(), (Names{"height", "age"}));
  EXPECT_EQ(table->numbers("labels"), (Numbers{1.75, 30, 2, -4.5}));
  ASSERT_EQ(table->unused().size(), 1u);
  EXPECT_EQ(table->unused()[0].names, (Names{"id", "note"}));
  const auto classes =
      csv("id,file,kind\n7,a.png,hen\n8,b.png,cat\n", LabelKind::classes, "image=file,label=kind");
  EXPECT_EQ(classes->class_names(), (Names{"cat", "hen"}));
  EXPECT_EQ(classes->label(0), 1);
  const auto only = csv("image,age\na.png,30\n", kNumbers);
  EXPECT_EQ(only->class_names(), (Names{"age"}));
  EXPECT_EQ(only->fields()[1], (FieldSpec{"labels", DType::f32, {1}})) << "f32, although it is whole";
  const auto dogs = csv("image,height,weight\na.png,0.5,20\n", kNumbers, "label=height,weight");
  EXPECT_EQ(dogs->numbers("labels"), (Numbers{0.5, 20}));
  EXPECT_EQ(dogs->fields().size(), 2u) << "which no sampler is to draw by";
  EXPECT_EQ(csv("image,height,weight\na.png,0.5,20\n", kNumbers)->fields().size(), 3u);
}

// The validation set has the labels of the training set, in its order.
TEST_F(LabelColumns, FollowGivenNames) {
  const Names names{"hen", "cat"};
  const auto columns = csv("image,cat,dog,hen\na.png,1,0,0\n", kSeveral, "", names);
  EXPECT_EQ(columns->class_names(), names);
  EXPECT_EQ(columns->numbers("labels"), (Numbers{0, 1}));
  const auto lists = csv("image,label\na.png,cat\nb.png,\n", kSeveral, "", names);
  EXPECT_EQ(lists->class_names(), names);
  EXPECT_EQ(lists->numbers("labels"), (Numbers{0, 1, 0, 0}));
  EXPECT_EQ(csv("image,label\na.png,1\n", kSeveral, "", {"0", "1"})->numbers("labels"), (Numbers{0, 1}))
      << "the class 1, not a flag";
  EXPECT_TRUE(test::names(said("image,label\na.png,cat\nb.png,dog\n", kSeveral, "", names),
                          {"line 3", "label", "dog", "training images"}));
  EXPECT_TRUE(test::names(said("image,cat,dog\na.png,1,0\n", kSeveral, "", names), {"hen", "cat", "dog"}));
  const std::shared_ptr<const Dataset> other = csv("image,cat,hen\na.png,1,0\n", kSeveral);
  EXPECT_EQ(with_classes(other, names)->numbers("labels"), (Numbers{0, 1})) << "matched by name";
  EXPECT_ERROR(ArgumentError, with_classes(other, {"hen", "dog"}), "labels", "'hen', 'dog'", "'cat', 'hen'");
  EXPECT_EQ(with_classes(other, {"cat", "hen"}), other);
}

TEST_F(LabelColumns, ThatAreWrongAreNamed) {
  EXPECT_TRUE(test::names(said("image,cat,dog\na.png,1,0\nb.png,2,0\n", kSeveral), {"line 3", "cat", "'2'"}));
  EXPECT_TRUE(test::names(said("image,cat,dog\na.png,1,\n", kSeveral), {"line 2", "dog", "missing"}));
  EXPECT_TRUE(test::names(said("image,id,dog\na.png,x,1\n", kSeveral), {"line 2", "id", "'x'", "--fields"}));
  EXPECT_TRUE(test::names(said("image,age\na.png,1\nb.png,nan\n", kNumbers), {"line 3", "age", "'nan'"}));
  EXPECT_TRUE(test::names(said("image,age\na.png,1\nb.png,\n", kNumbers), {"line 3", "age", "missing"}));
  EXPECT_TRUE(test::names(said("image,age,note,id,weight\na.png,1,x,2,3\n", kNumbers),
                          {"3 columns of numbers", "--fields label=age,id,weight"}));
  EXPECT_TRUE(test::names(said("file,age,id\na.png,1,2\n", kNumbers, "image=file"),
                          {"--fields image=file,label=age,id"}));
  EXPECT_TRUE(test::names(said("image,note\na.png,x\n", kNumbers), {"'note'", "'x'", "--fields label"}));
  EXPECT_TRUE(test::names(said("file,age\na.png,1\n", kNumbers), {"'image'", "file", "--fields image=NAME"}));
  EXPECT_TRUE(test::names(said("image,a,a\na.png,1,0\n", kSeveral), {"line 1", "'a'", "twice"}));
  EXPECT_TRUE(
      test::names(said("image,a,b\na.png,1,0\n", LabelKind::classes, "label=a,b"), {"--task classify", "2"}));
  EXPECT_TRUE(test::names(said("image,label\na.png,\n", kSeveral), {"label", "none"}));
  EXPECT_TRUE(test::names(said("image,cat\n", kSeveral), {"at least one sample"}));
}

// A message about them must not go down as deep as they do.
TEST_F(LabelColumns, MayBeNestedArbitrarilyDeep) {
  constexpr std::size_t kDeep = 1'000'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  for (const char* column : {"image", "label", "weight"}) {
    std::string row = "{";
    for (const char* other : {"image", "label", "weight"})
      row += fmt::format("{}\"{}\": {}", row == "{" ? "" : ", ", other,
                         std::string_view(other) == column ? deep : "\"a.png\"");
    for (const LabelKind kind : {kSeveral, kNumbers}) {
      const std::string line =
          test::message_of<IoError>([&] { open("a.jsonl", row + "}", {.labels = kind}); });
      const bool names_it = kind == kSeveral && std::string_view(column) == "label";
      EXPECT_FALSE(line.empty() && !names_it) << column;
      EXPECT_LT(line.size(), 1000u) << column;
    }
  }
}

TEST_F(LabelColumns, FindImagesInAFolderBesideTheTable) {
  for (const char* place : {"images/x.jpg", "set/x.jpg"}) {
    const test::TempDir root;
    write_file(root / place, "");
    write_file(root / "set.csv", "image_id,healthy,scab\nx,0,1\n");
    const auto table = open_samples(root / "set.csv", {.fields = "image=image_id", .labels = kSeveral});
    EXPECT_EQ(table->where(0), (root / place).string());
    const auto in_folder = open_samples(root.path(), {.fields = "image=image_id", .labels = kSeveral});
    EXPECT_EQ(in_folder->class_names(), (Names{"healthy", "scab"}));
  }
}

TEST_F(LabelColumns, InAFolderOfSeveralTablesAreToBeNamed) {
  for (const char* name : {"train.csv", "val.csv"}) write_file(folder_ / name, "image,cat\na.png,1\n");
  const auto open_folder = [&] { open_samples(folder_.path(), {.labels = kSeveral}); };
  EXPECT_ERROR(IoError, open_folder(), "--task multilabel", "train.csv, val.csv", "--train", "--val");
}

TEST_F(LabelColumns, StayInAPackedFile) {
  const auto table = csv("image,cat,dog\na.png,1,0\nb.png,0,1\n", kSeveral);
  for (const char* image : {"a.png", "b.png"}) write_file(folder_ / image, image);
  const auto writer = create_samples(
      folder_ / "a.athp", {.classes = 2, .class_names = table->class_names(), .fields = table->fields()});
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < 2; ++i) writer->add(table->fetch(i, scratch));
  writer->finish();
  const auto packed = open_samples(folder_ / "a.athp");
  EXPECT_EQ(packed->fields(), table->fields());
  EXPECT_EQ(packed->spec().classes, 2);
  EXPECT_EQ(packed->class_names(), table->class_names());
  EXPECT_EQ(packed->numbers("labels"), table->numbers("labels"));
  check_labels(*packed, kSeveral, "--val");
  // Damaged, a sample has no labels, and the others have theirs.
  std::string bytes = test::read_file(folder_ / "a.athp");
  bytes.replace(bytes.find("b.png"), 1, "c");
  write_file(folder_ / "damaged.athp", bytes);
  const auto damaged = open_samples(folder_ / "damaged.athp");
  const Numbers labels = damaged->numbers("labels");
  EXPECT_EQ((Numbers{labels.at(0), labels.at(1)}), (Numbers{1, 0}));
  EXPECT_TRUE(std::isnan(labels.at(2)) && std::isnan(labels.at(3)));
  EXPECT_ERROR(IoError, check_labels(*damaged, kSeveral, "--train"), "damaged.athp", "offset");
  check_labels(*damaged, kSeveral, "--train", true);
}

TEST_F(LabelColumns, AreCheckedForATask) {
  const std::shared_ptr<const Dataset> ages = csv("image,age\na.png,30\nb.png,-4\n", kNumbers);
  check_labels(*ages, kNumbers, "--train");
  EXPECT_ERROR(ArgumentError, check_labels(*ages, LabelKind::classes, "--train"), "--train", "'label'",
               "--task classify");
  EXPECT_ERROR(ArgumentError, check_labels(*ages, kSeveral, "--val"), "--val", "'age' of sample 0", "a.png",
               "from 0 to 1", "30");
  const InMemoryDataset classes({1, 1, 1, 2}, {1, 2}, {0, 1});
  EXPECT_ERROR(ArgumentError, check_labels(classes, kNumbers, "--train"), "'labels'", "--task regression",
               ".csv");
  const auto [train, held_out] = stratified_split(ages, 0.5, 1);
  EXPECT_EQ(train->numbers("labels").size(), 1u);
  EXPECT_NE(train->numbers("labels"), held_out->numbers("labels"));
}

}  // namespace athanor::label_columns_test
