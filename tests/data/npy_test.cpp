#include "data/formats/npy.h"

#include <cerrno>

#include "data/formats/open.h"
#include "tests/support/stores.h"

namespace athanor::npy_test {

using namespace test;

/// An .npy file as NumPy writes it.
std::string npy(const std::string& header, const std::string& data, int version = 1) {
  const std::size_t start = version == 1 ? 10 : 12;
  std::string padded = header;
  while ((start + padded.size() + 1) % 64 != 0) padded += ' ';
  padded += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (std::size_t i = 0; i < start - 8; ++i) file += static_cast<char>(padded.size() >> (8 * i));
  return file + padded + data;
}
std::string npy(const char* descr, const char* shape, const std::string& data, int version = 1) {
  return npy(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape), data,
             version);
}

TEST(Npy, ReadsHeadersOfEveryVersionAndSpelling) {
  const TempDir dir;
  write_file(dir / "labels.npy", npy("<i8", "(2,)", std::string("\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16)));
  const std::vector<OwnedSample> samples{{"abcdef", Codec::raw, 2, 3, 1, 3},
                                         {"ghijkl", Codec::raw, 2, 3, 1, 0}};
  for (const int version : {1, 2, 3}) {
    write_file(dir / "images.npy", npy("|u1", "(2, 2, 3)", "abcdefghijkl", version));
    expect_same(*open_npy(dir / "images.npy"), samples);
  }
  for (const char* header : {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 3)}",
                             "{\"shape\":(2L,2L,3L,1L,),\"fortran_order\":False,\"descr\":\"<u1\",}",
                             "  { 'fortran_order' :False , 'shape' : ( 2 ,2,3 ) , 'descr':'|u1' }"}) {
    write_file(dir / "images.npy", npy(header, "abcdefghijkl"));
    expect_same(*open_npy(dir / "images.npy"), samples);
  }
}

TEST(Npy, LabelsOfAnotherKindAreNumbersOfAnyType) {
  const TempDir dir;
  using Numbers = std::vector<double>;
  write_file(dir / "images.npy", npy("|u1", "(2, 1, 1)", "ab"));
  const auto numbers = [&](const std::string& labels) {
    write_file(dir / "labels.npy", labels);
    const auto data = open_samples(dir / "images.npy", {.labels = LabelKind::values});
    EXPECT_EQ(data->fields()[1], (FieldSpec{"labels", DType::f32, {data->spec().classes}}));
    return data->numbers("labels");
  };
  const std::vector<float> floats{1.5f, -2, 0, 3};
  const std::vector<double> doubles{0.25, 7};
  const auto bytes_of = [](const auto& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(all[0]));
  };
  EXPECT_EQ(numbers(npy("<f4", "(2, 2)", bytes_of(floats))), (Numbers{1.5, -2, 0, 3}));
  EXPECT_EQ(numbers(npy("<f8", "(2,)", bytes_of(doubles))), (Numbers{0.25, 7}));
  EXPECT_EQ(numbers(npy("|b1", "(2, 3)", std::string("\1\0\1\0\0\1", 6))), (Numbers{1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(numbers(npy("<i2", "(2, 1)", std::string("\3\0\xff\xff", 4))), (Numbers{3, -1}));
  EXPECT_ERROR(IoError, numbers(npy("<f2", "(2,)", "abcd")), "labels.npy", "<f2", "numpy.float32");
  EXPECT_ERROR(IoError, numbers(npy("<f4", "(3,)", std::string(12, '\0'))), "labels.npy", "[3]");
  EXPECT_ERROR(IoError, numbers(npy("<f4", "(2, 0)", "")), "labels.npy", "[2, 0]");
  EXPECT_ERROR(IoError, numbers(npy("<f4", "(2, 2)", "short")), "labels.npy", "16", "5");
  EXPECT_ERROR(
      IoError,
      numbers(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", std::string(16, '\0'))),
      "labels.npy", "Fortran");
}

TEST(Npy, TakesLabelsOfEveryWholeTypeAndByteOrder) {
  const TempDir dir;
  write_file(dir / "images.npy", npy("|u1", "(2, 1, 1)", "ab"));
  const auto read = [&] { return open_npy(dir / "images.npy"); };
  for (const char order : {'<', '>', '=', '|'}) {
    for (const char sign : {'i', 'u'}) {
      for (const std::size_t width : {1u, 2u, 4u, 8u}) {
        const std::string descr{order, sign, static_cast<char>('0' + width)};
        std::string label(width, '\0'), zero(width, '\0'), ones(width, '\xff');
        label[order == '>' ? width - 1 : 0] = 5;
        if (width > 1) label[order == '>' ? width - 2 : 1] = 1;
        const std::int64_t value = width > 1 ? 261 : 5;
        for (const char* shape : {"(2,)", "(2, 1)"}) {
          write_file(dir / "labels.npy", npy(descr.c_str(), shape, label + zero));
          std::vector<std::byte> scratch;
          EXPECT_EQ(read()->fetch(0, scratch).label, value) << descr;
          EXPECT_EQ(read()->fetch(1, scratch).label, 0) << descr;
        }
        write_file(dir / "labels.npy", npy(descr.c_str(), "(2,)", zero + ones));
        if (sign == 'i' || width >= 4) {
          EXPECT_ERROR(IoError, read(), "labels.npy", std::to_string(128 + width), "label",
                       "[0, 2147483648)");
        } else {
          EXPECT_EQ(read()->spec().classes, width == 1 ? 256 : 65536);
        }
      }
    }
  }
}

TEST(Npy, HostileHeadersAreOneLineNamingFileAndOffset) {
  const TempDir dir;
  write_file(dir / "labels.npy", npy("<i8", "(2,)", std::string(16, '\0')));
  const auto read = [&] { read_all(*open_npy(dir / "images.npy")); };
  const std::string data(12, 'a');
  const std::string dict = "{'descr': '|u1', 'fortran_order': False, 'shape': ";
  for (const BadFile& bad : std::vector<BadFile>{
           {npy("<f4", "(2, 2, 3)", data), 0, {"|u1", "<f4", "255", "astype(numpy.uint8)"}},
           {npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2, 3), }", data),
            0,
            {"numpy.ascontiguousarray"}},
           {npy("{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (2, 2, 3), }", data),
            10,
            {"dtype"}},
           {npy("|u1", "(12,)", data), 0, {"[N, H, W]", "[N, H, W, C]", "[12]"}},
           {npy("|u1", "(2, 3, 1, 5)", std::string(30, 'a')), 0, {"[N, 3, 1, 5]", "transpose(0, 2, 3, 1)"}},
           {npy("|u1", "(0, 2, 3)", ""), 0, {}},
           {npy("|u1", "(2, 0, 3)", ""), 0, {"0x3x1"}},
           {npy("|u1", "(3, 2, 3)", data), 128, {"18", "12"}},
           {npy("|u1", "(2, 2, 2)", data), 136, {}},
           {npy("|u1", "(9223372036854775807, 2, 3)", data), 128, {"[9223372036854775807, 2, 3]"}},
           {npy("|u1", "(9223372036854775808, 2, 3)", data), 10, {"[0, 2^63)", "9223372036854775808"}},
           {npy("|u1", "(2, 4294967296, 4294967296)", data), 0, {"4294967296x4294967296x1"}},
           {npy("|u1", "(-2, 2, 3)", data), 10, {"[0, 2^63)", "-2"}},
           {npy("|u1", "(1,1,1,1,1,1,1,1,1)", data), 10, {"8"}},
           {npy(dict + "(2, 2, 3)", data), 128, {}},
           {npy(dict + "(2, 2, 3), 'shape': (2, 2, 3)}", data), 10, {"descr, fortran_order, shape, shape"}},
           {npy(dict + "(2, 2, 3)} x", data), 71, {}},
           {npy("{'descr': '|u1}", data), 63, {}},
           {npy("{'a\nb': 1}", data), 13, {}},
           {npy("", data), 64, {}},
           {npy(dict + "(2, 2, 3), 'a': 1}", data), 10, {"a, descr, fortran_order, shape"}},
           {npy(dict + "(2, (2), 3)}", data), 10, {"[0, 2^63)", "array"}},
           {npy(dict + std::string(60'000, '['), data), 60096, {}},
           {"", 0, {"8", "0"}},
           {"\x93NUMPX" + std::string(100, ' '), 0, {"\\x93NUMPY"}},
           {"\x93NUMPY\4" + std::string(100, ' '), 6, {"1", "2", "3", "4"}},
           {std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12) + std::string(100, ' '),
            8,
            {"1048576", "4294967295"}},
       }) {
    write_file(dir / "images.npy", bad.content);
    expect_named(message_of<IoError>(read), "images.npy", bad);
  }
  write_file(dir / "images.npy", npy("|u1", "(3, 2, 2)", data));
  EXPECT_ERROR(IoError, read(), "labels.npy", "3", "[2]");
  write_file(dir / "images.npy", npy("|u1", "(2, 2, 3)", data));
  write_file(dir / "labels.npy", npy("<f4", "(2,)", std::string(8, '\0')));
  EXPECT_ERROR(IoError, read(), "labels.npy", "<f4", "astype(numpy.int64)");
  EXPECT_ERROR(ArgumentError, open_npy(dir / "pics.npy"), "pics.npy", "images.npy", "labels.npy");
}

#ifdef ATHANOR_TEST_LIBZIP
TEST(Npz, TakesArraysByName) {
  const TempDir dir;
  const auto samples = raw_samples(3, 5, 7, 1, 3);
  write_all(create_npz(dir / "a.npz"), samples);
  expect_same(*open_npz(dir / "a.npz", {.image = "images", .label = "labels"}), samples);
  expect_same(*open_npz(dir / "a.npz", {.image = "images"}), samples);
  EXPECT_ERROR(IoError, open_npz(dir / "a.npz", {.image = "x", .label = "labels"}), "a.npz:x.npy");
}

TEST(Npz, ReadsWhatNumPyDeflated) {
  expect_same(*open_npz(std::filesystem::path(ATHANOR_GOLDEN_DIR) / "formats/numpy.npz"), golden_samples());
}

TEST(Npz, AnArchiveOfOtherArraysSaysWhatItNeeds) {
  const TempDir dir;
  write_all(create_npz(dir / "a.npz"), raw_samples(1, 2, 2, 3, 3));
  std::string file = read_file(dir / "a.npz");
  for (std::size_t at; (at = file.find("labels.npy")) != std::string::npos;) file[at] = 'k';
  write_file(dir / "a.npz", file);
  EXPECT_ERROR(IoError, open_npz(dir / "a.npz"), "a.npz", "images", "labels", "x_train", "y_train", "kabels",
               "numpy.savez");
  write_file(dir / "a.npz", "not a zip");
  EXPECT_ERROR(IoError, open_npz(dir / "a.npz"), "a.npz", "zip");
  EXPECT_ERROR(IoError, open_npz(dir / "none.npz"), "none.npz", std::strerror(ENOENT));
}
#else
TEST(Npz, SaysThatItNeedsLibzip) {
  const TempDir dir;
  write_all(create_npz(dir / "a.npz"), raw_samples(1, 2, 2, 3, 3));
  EXPECT_ERROR(IoError, open_npz(dir / "a.npz"), "a.npz", "libzip");
}
#endif

}  // namespace athanor::npy_test
