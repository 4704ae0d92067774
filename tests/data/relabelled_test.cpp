#include "data/relabelled.h"

#include <memory>
#include <set>
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
