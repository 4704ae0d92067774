#include "data/relabelled.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/formats/open.h"
#include "data/formats/packed_writer.h"
#include "data/in_memory.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::relabelled_test {

using test::TempDir;
using Names = std::vector<std::string>;

std::shared_ptr<const Dataset> animals(const Names& names) {
  return std::make_shared<InMemoryDataset>(*synthetic({4, 4, 1, std::ssize(names)}, 24), names);
}

TEST(Relabelled, ClassesAreMatchedByName) {
  const auto source = animals({"dog", "ant"});
  const Relabelled data(source, {"ant", "bee", "dog"});
  EXPECT_EQ(data.spec().classes, 3);
  EXPECT_EQ(data.class_names(), (Names{"ant", "bee", "dog"}));
  std::vector<std::uint8_t> pixels(16);
  std::vector<std::byte> scratch;
  Loader loader(data, {.batch_size = 24});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const std::int64_t expected = source->label(i) == 0 ? 2 : 0;
    EXPECT_EQ(data.label(i), expected);
    EXPECT_EQ(data.read(i, pixels), expected);
    EXPECT_EQ(data.fetch(i, scratch).label, expected);
    EXPECT_EQ(batch.labels.data<std::int64_t>()[i], expected);
  }
}

TEST(Relabelled, AnUnknownClassIsNamed) {
  EXPECT_ERROR(ArgumentError, Relabelled(animals({"ant", "cat"}), {"ant", "dog"}), "'ant', 'dog'", "'cat'");
  EXPECT_ERROR(ArgumentError, Relabelled(animals({"ant"}), {"ant", "ant"}), "'ant'");
}

/// What is said of data with the class `own`, for others than which `known` is one.
std::string refusal_of(const std::string& own, const std::string& known) {
  return test::message_of([&] { Relabelled(animals({"x", own}), {"bee", "x", known}); });
}

TEST(Relabelled, BytesAreToldOfNamesThatLookAlike) {
  struct Case {
    std::string name, bytes, other, bytes_of_other;
  };
  const std::vector<Case> cases{{"caf\u00e9", "63 61 66 c3 a9", "cafe\u0301", "63 61 66 65 cc 81"},
                                {"\u1ebf", "e1 ba bf", "\u00ea\u0301", "c3 aa cc 81"},
                                {"\u304c", "e3 81 8c", "\u304b\u3099", "e3 81 8b e3 82 99"},
                                {"\ud55c", "ed 95 9c", "\u1112\u1161\u11ab", "e1 84 92 e1 85 a1 e1 86 ab"},
                                {"ant", "61 6e 74", "Ant", "41 6e 74"},
                                {"ant", "61 6e 74", " ant\r", "20 61 6e 74 0d"}};
  for (const Case& one : cases) {
    EXPECT_TRUE(test::names(refusal_of(one.name, one.other), {one.bytes, one.bytes_of_other}));
    EXPECT_TRUE(test::names(refusal_of(one.other, one.name), {one.bytes, one.bytes_of_other}));
  }
  const std::vector<std::pair<std::string, std::string>> different{
      {"\u00fcber", "\u00e4ber"}, {"\u3044", "\u304b\u3099x"}, {"e", "e\u0301"}, {"ant", "cat"}};
  for (const auto& pair : different) {
    const std::string said = refusal_of(pair.first, pair.second);
    EXPECT_TRUE(test::names(said, {pair.first}));
    EXPECT_EQ(said.find("bytes"), said.npos) << said;
  }
}

TEST(Relabelled, AClassWithoutSamplesMayBeUnknown) {
  const auto whole = animals({"ant", "bee", "cat"});
  const auto part = [&](const std::set<std::int64_t>& labels) {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < whole->size(); ++i)
      if (labels.contains(whole->label(i))) samples.push_back(i);
    return std::make_shared<Subset>(whole, samples);
  };
  const Relabelled data(part({0, 2}), {"cat", "ant"});
  for (std::int64_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(data.label(i), part({0, 2})->label(i) == 0 ? 1 : 0);
  EXPECT_ERROR(ArgumentError, Relabelled(part({0, 1}), {"cat", "ant"}), "'bee'");
}

/// Two samples of three labels, in the order of `names`: a dog; an ant and a dog.
std::shared_ptr<const Dataset> several(const TempDir& dir, const Names& names) {
  const std::filesystem::path file = dir / (names[0] + ".athp");
  const auto writer = create_samples(
      file, {.class_names = names,
             .fields = {{"image", DType::u8, {2, 2, 1}, FieldKind::picture}, {"labels", DType::f32, {3}}}});
  const std::vector<std::byte> pixels(4);
  for (const std::set<std::string>& has : {std::set<std::string>{"dog"}, {"ant", "dog"}}) {
    std::vector<float> labels;
    for (const std::string& name : names) labels.push_back(has.contains(name) ? 1 : 0);
    const StoredField field{std::as_bytes(std::span(labels))};
    writer->add({.bytes = pixels, .height = 2, .width = 2, .channels = 1, .more = {&field, 1}});
  }
  writer->finish();
  return open_samples(file);
}

TEST(Relabelled, SeveralLabelsAreMatchedByName) {
  const TempDir dir;
  const Names names{"ant", "bee", "dog"};
  const auto source = several(dir, {"dog", "ant", "bee"});
  ASSERT_EQ(source->numbers("labels"), (std::vector<double>{1, 0, 0, 1, 1, 0}));
  const auto data = with_classes(source, names);
  EXPECT_EQ(data->class_names(), names);
  EXPECT_EQ(data->numbers("labels"), (std::vector<double>{0, 0, 1, 1, 0, 1}));
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < 2; ++i) {
    const StoredSample sample = data->fetch(i, scratch);
    ASSERT_EQ(sample.more.size(), 1u);
    const std::vector<float> expected{i == 0 ? 0.f : 1.f, 0, 1};
    EXPECT_TRUE(std::ranges::equal(sample.more[0].bytes, std::as_bytes(std::span(expected))));
    EXPECT_EQ(sample.bytes.size(), 4u);
  }
  Loader loader(*data, {.batch_size = 2});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch["labels"].to_vector(), (std::vector<double>{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(with_classes(source, source->class_names()), source);
  EXPECT_ERROR(ArgumentError, with_classes(source, {"ant", "bee", "cat"}), "'cat'", "'dog'");
}

TEST(Relabelled, EqualClassesAndSetsWithoutNamesStayAsTheyAre) {
  const auto data = animals({"ant", "bee"});
  EXPECT_EQ(with_classes(data, {"ant", "bee"}), data);
  EXPECT_EQ(with_classes(data, {}), data);
  const std::shared_ptr<const Dataset> unnamed = synthetic({4, 4, 1, 2}, 4);
  EXPECT_EQ(with_classes(unnamed, {"ant", "bee"}), unnamed);
  EXPECT_NE(with_classes(data, {"bee", "ant"}), data);
}

// Names travel with what is packed: any bytes, and classes without samples.
TEST(ClassNames, ArchivesThatWeWriteHaveThem) {
  const Names names{"ant", "tab\tand\nline", "100%", "caf\xe9", "never seen", std::string(255, 'n')};
  for (const char* file : {"a.tar", "a.athp"}) {
    const TempDir dir;
    const auto writer = create_samples(dir / file, {.classes = 6, .class_names = names});
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::string bytes = "\x89PNG any";
      writer->add({.bytes = std::as_bytes(std::span(bytes)), .codec = Codec::png, .label = i});
    }
    writer->finish();
    const auto read = open_samples(dir / file);
    EXPECT_EQ(read->class_names(), names) << file;
    EXPECT_EQ(read->spec().classes, 6) << file;
    EXPECT_EQ(read->label(3), 3) << file;
  }
}

}  // namespace athanor::relabelled_test
