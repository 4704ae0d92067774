#include "data/formats/tar.h"

#include "data/formats/open.h"
#include "tests/support/stores.h"

namespace athanor::tar_test {

using namespace test;

/// A member as tar writes it, of any type; `size_field` instead of the octal size where given.
std::string member(const std::string& name, const std::string& content, char type = '0',
                   const std::string& prefix = "", const std::string& size_field = "",
                   const std::string& magic = std::string("ustar\00000", 8)) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, size_field.empty() ? fmt::format("{:011o}", content.size()) : size_field);
  put(148, "        ");
  put(156, std::string{type});
  put(257, magic);
  put(345, prefix);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}
std::string pax(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}
const std::string kEnd(1024, '\0');
const std::string kJpeg = encoded_sample(Codec::jpeg, 9, 0).bytes,
                  kPng = encoded_sample(Codec::png, 700, 0).bytes;

std::vector<OwnedSample> encoded_samples() {
  return {encoded_sample(Codec::jpeg, 1, 3), encoded_sample(Codec::png, 512, 0),
          encoded_sample(Codec::jpeg, 513, 70000), encoded_sample(Codec::png, 5000, 1)};
}

TEST(Tar, IsPaddedToItsRecordSize) {
  const TempDir dir;
  write_all(create_tar(dir / "a.tar"), {encoded_sample(Codec::jpeg, 513, 1)});
  EXPECT_EQ(std::filesystem::file_size(dir / "a.tar") % 10240, 0u);
}

TEST(Tar, ReadsWhatTarItselfWrites) {
  const TempDir dir;
  const std::string deep = std::string(90, 'd') + "/" + std::string(90, 'e') + "/" + std::string(120, 'f');
  write_file(dir / "in" / "a" / "1.jpg", kJpeg);
  write_file(dir / "in" / "a" / "1.cls", " 5\n");
  write_file(dir / "in" / deep / (std::string(150, 'g') + ".seg.png"), "passed over");
  write_file(dir / "in" / deep / (std::string(150, 'g') + ".PNG"), kPng);
  write_file(dir / "in" / deep / (std::string(150, 'g') + ".json"), R"({"label": 7, "more": [1, {}]})");
  for (const std::string format : {"gnu", "ustar", "posix", "oldgnu"}) {
    const std::string from = format == "ustar" ? "a" : "a " + deep.substr(0, 90);
    const std::string command = fmt::format("tar --format={} -C {} -cf {} {}", format, (dir / "in").string(),
                                            (dir / "a.tar").string(), from);
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::vector<OwnedSample> samples{{kJpeg, Codec::jpeg, 0, 0, 0, 5}};
    if (format != "ustar") samples.push_back({kPng, Codec::png, 0, 0, 0, 7});
    SCOPED_TRACE(format);
    expect_same(*open_tar(dir / "a.tar"), samples);
  }
}

// As the columns of a table: the keys of a .json, or the text of a .cls.
TEST(Tar, HasSeveralLabelsAndValues) {
  const TempDir dir;
  using Names = std::vector<std::string>;
  using Numbers = std::vector<double>;
  constexpr LabelKind kSeveral = LabelKind::multilabel, kValues = LabelKind::values;
  const std::string a = member("a.jpg", kJpeg), b = member("b.png", kPng);
  const auto opened = [&](const std::string& of_a, const std::string& of_b, LabelKind kind,
                          const std::string& fields = "", const Names& names = {}) {
    const std::string suffix = of_a.starts_with('{') ? ".json" : ".cls";
    write_file(dir / "a.tar", a + member("a" + suffix, of_a) + member("b" + suffix, of_b) + b + kEnd);
    return open_samples(dir / "a.tar", {.fields = fields, .labels = kind, .label_names = names});
  };
  const char *const both = R"({"labels": ["dog", "ant"], "source": "x"})", *const none = R"({"labels": []})";
  const auto lists = opened(both, none, kSeveral);
  EXPECT_EQ(lists->class_names(), (Names{"ant", "dog"}));
  EXPECT_EQ(lists->numbers("labels"), (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(lists->spec().classes, 2);
  EXPECT_EQ(text_of(lists->unused()), "1 columns that are neither images nor labels (source)");
  std::vector<std::byte> scratch;
  const StoredSample second = lists->fetch(1, scratch);
  EXPECT_EQ(second.bytes.size(), kPng.size());
  ASSERT_EQ(second.more.size(), 1u);
  EXPECT_EQ(second.more[0].bytes.size(), 8u);
  EXPECT_EQ(opened(both, none, kSeveral, "", {"dog", "bee", "ant"})->numbers("labels"),
            (Numbers{1, 0, 1, 0, 0, 0}))
      << "in the order of the training set";
  const auto columns = opened(R"({"cat": 1, "hen": 0, "id": 7})", R"({"cat": 0, "hen": true, "id": 8})",
                              kSeveral, "label=hen,cat");
  EXPECT_EQ(columns->class_names(), (Names{"hen", "cat"}));
  EXPECT_EQ(columns->numbers("labels"), (Numbers{0, 1, 1, 0}));
  EXPECT_EQ(opened("0 2\n", "2", kSeveral)->numbers("labels"), (Numbers{1, 1, 0, 1}));
  EXPECT_EQ(opened(R"({"label": [1.5, -2]})", R"({"label": [3, 4]})", kValues)->numbers("labels"),
            (Numbers{1.5, -2, 3, 4}));
  EXPECT_EQ(opened("3.5", "-1", kValues)->numbers("labels"), (Numbers{3.5, -1}));
  EXPECT_ERROR(IoError, opened(R"({"age": 3})", "{}", kValues), "a.tar, offset", "'age'");
  EXPECT_ERROR(IoError, opened(R"({"label": [1, 2]})", R"({"label": [3]})", kValues), "a.tar", "2", "1");
  EXPECT_ERROR(IoError, opened("{", "1", kValues), "a.json");
}

TEST(Tar, PutsMembersOfOneNameTogetherWhereverTheyLie) {
  const TempDir dir;
  const std::string long_name = std::string(200, 'n') + ".jpg";
  write_file(dir / "a.tar",
             member("folder/", "", '5') + member("y.cls", "2") + member("README", "no suffix") +
                 member("x.jpg", kJpeg) + member("link.jpg", "", '2') +
                 member("", pax("comment", "all"), 'g') + member("y.txt", "passed over") +
                 member("x.json", R"({"label": 1})", '\0') + member("y.jpeg", kJpeg + "y", '7') +
                 member("z.png", kPng, '0', "in/front") + member("in/front/z.cls", "0", '0', "", "", "") +
                 member("././@LongLink", std::string(50, 'l'), 'K') +
                 member("././@LongLink", long_name + '\0', 'L') + member("cut off", kJpeg + "n") +
                 member("pax", pax("path", std::string(200, 'n') + ".cls") + pax("size", "1"), 'x') +
                 member("cut off too", "4", '0', "", "00000000000") + kEnd);
  expect_same(*open_tar(dir / "a.tar"), {{kJpeg + "y", Codec::jpeg, 0, 0, 0, 2},
                                         {kJpeg, Codec::jpeg, 0, 0, 0, 1},
                                         {kPng, Codec::png, 0, 0, 0, 0},
                                         {kJpeg + "n", Codec::jpeg, 0, 0, 0, 4}});
}

TEST(Tar, HostileArchivesAreOneLineNamingFileAndOffset) {
  const TempDir dir;
  const std::string image = member("x.jpg", kJpeg), label = member("x.cls", "1");
  std::string wrong_sum = image;
  wrong_sum[3] = 'k';
  const std::string base256 = std::string("\x80") + std::string(11, '\x7f'),
                    small256 = std::string("\x80\0\0\0\0\0\0\0\0\0\0\x09", 12);
  const std::vector<BadFile> cases{
      {"", 0, {"512", "0"}},
      {kEnd, 0, {".jpg", ".jpeg", ".png", ".webp"}},
      {member("x.1.jpg", kJpeg) + member("x.1.cls", "1") + kEnd, 0, {"x.1.jpg"}},
      {"\x1f\x8b" + image, 0, {"gunzip"}},
      {"\x28\xb5\x2f\xfd" + image, 0, {"unzstd"}},
      {"BZh9" + image, 0, {"bunzip2"}},
      {wrong_sum + kEnd, 0, {"checksum"}},
      {label + wrong_sum + kEnd, 1024, {"checksum", "x.cls"}},
      {std::string(512, 'x'), 148, {"checksum", "octal"}},
      {image + label, 2048, {"512", "0", "x.cls"}},
      {image + kEnd, 512, {"x", ".cls", ".json", "\"label\""}},
      {label + kEnd, 512, {"x", ".jpg", ".jpeg", ".png", ".webp"}},
      {image + image + label + kEnd, 1536, {"x.jpg"}},
      {image + label + member("x.json", "{\"label\": 2}") + kEnd, 2560, {"x.json", "label", "1", "2"}},
      {image + member("x.cls", "") + kEnd, 1536, {".cls", "''"}},
      {image + member("x.cls", "one\n") + kEnd, 1536, {"x.cls", "'one'"}},
      {image + member("x.cls", "1.5") + kEnd, 1536, {".cls", "'1.5'"}},
      {image + member("x.cls", "-1") + kEnd, 1536, {"x.cls", "label", "[0, 2147483648)", "-1"}},
      {image + member("x.cls", "99999999999999999999") + kEnd, 1536, {".cls", "'99999999999999999999'"}},
      {image + member("x.json", "[1]") + kEnd, 1536, {"x.json"}},
      {image + member("x.json", "{\"label\": ") + kEnd, 1536, {".json"}},
      {image + member("x.json", "{\"label\": \"1\"}") + kEnd, 1536, {"\"label\""}},
      {image + member("x.json", "{\"label\": 18446744073709551615}") + kEnd, 1536, {"\"label\""}},
      {member("x.jpg", "") + label + kEnd, 512, {"x.jpg"}},
      {member("x.jpg", kJpeg, '0', "", "77777777777") + kEnd, 512, {"x.jpg", "8589934591"}},
      {member("x.jpg", kJpeg, '0', "", base256) + kEnd, 124, {"x.jpg", "2^63"}},
      {member("x.jpg", kJpeg, '0', "", "12345678x") + kEnd, 124, {"x.jpg", "octal"}},
      {member("p", "99 path=x\n", 'x') + kEnd, 512, {"pax"}},
      {member("p", "path=x\n", 'x') + kEnd, 512, {"pax"}},
      {member("p", "3 x\n", 'x') + kEnd, 512, {"pax"}},
      {member("p", pax("size", "99999999999999999999"), 'x') + image + kEnd, 512, {"pax"}},
      {member("p", pax("size", "-1"), 'x') + image + kEnd, 512, {"pax"}},
      {member("p", pax("size", "9223372036854775807"), 'x') + image + kEnd, 1536, {"9223372036854775807"}},
      {member("p", pax("GNU.sparse.major", "1"), 'x') + image + kEnd, 512, {"--sparse"}},
      {member("x.jpg", "", 'S') + kEnd, 0, {"x.jpg", "--sparse"}},
      {member("l", std::string(70000, 'l'), 'L') + kEnd, 0, {"65536", "70000"}},
  };
  for (const BadFile& bad : cases) {
    write_file(dir / "a.tar", bad.content);
    expect_named(message_of<IoError>([&] { read_all(*open_tar(dir / "a.tar")); }), "a.tar", bad);
  }
  for (const char* name : {"a.tar.gz", "a.tgz"}) {
    write_file(dir / name, "\x1f\x8b" + image);
    EXPECT_ERROR(IoError, open_samples(dir / name), name, "gunzip");
  }
  write_file(dir / "a.tar", member("x.jpg", kJpeg, '0', "", small256) + label + kEnd);
  expect_same(*open_tar(dir / "a.tar"), {{kJpeg, Codec::jpeg, 0, 0, 0, 1}});
  write_file(dir / "a.tar", image + member("x.json", "{\"label\": 1, \"kind\": 4}") + kEnd);
  EXPECT_EQ(open_tar(dir / "a.tar", {.label = "kind"})->spec().classes, 5);
}

}  // namespace athanor::tar_test
