// make_corpus FOLDER: the inputs that fuzzing starts from, FOLDER/NAME/* for the target NAME, made by our own
// writers.

#include <array>
#include <cstdio>  // for jpeglib.h
#include <iostream>
#include <sstream>
#include <tuple>

#include <jpeglib.h>
#include <png.h>
#ifdef ATHANOR_FUZZ_WEBP
#include <webp/encode.h>
#endif

#include "data/formats/example.h"
#include "data/formats/idx.h"
#include "data/formats/npy.h"
#include "data/formats/packed_writer.h"
#include "data/formats/raw.h"
#include "data/formats/tar.h"
#include "data/formats/tfrecord.h"
#include "data/image/jpeg.h"
#include "dist/watch/flight_record.h"
#include "fuzz.h"
#include "tensor/io/safetensors.h"
#include "tests/support/image_files.h"
#include "tests/support/torch_writer.h"
#include "trainer/report/detail/page.h"

namespace athanor {
namespace {

using Writer = std::unique_ptr<SampleWriter>;

std::string content(const char* name) {
  std::ifstream in(fuzz::folder() / name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// `count` raw images of side x side x channels with small labels.
void write_raw(const Writer& writer, std::int64_t count, std::int64_t side, std::int64_t channels) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string pixels(static_cast<std::size_t>(side * side * channels), static_cast<char>('a' + i));
    writer->add({std::as_bytes(std::span(pixels)), Codec::raw, side, side, channels, i % 3});
  }
  writer->finish();
}

void write_encoded(const Writer& writer) {
  const std::string jpeg = "\xff\xd8\xff\xe0", png = "\x89PNG\r\n\x1a\n";
  writer->add({std::as_bytes(std::span(jpeg)), Codec::jpeg, 0, 0, 0, 1});
  writer->add({std::as_bytes(std::span(png)), Codec::png, 0, 0, 0, 2});
  writer->finish();
}

Writer packed(const std::filesystem::path& path) {
  // Small pages, so that a small file has several.
  return std::make_unique<PackedWriter>(
      path, PackedWriterOptions{.page_bytes = 4096, .class_names = {"a", "b", "c"}});
}

/// Images with masks and points.
void write_fields(const std::filesystem::path& path) {
  PackedWriter writer(path, {.page_bytes = 4096,
                             .fields = {{"image", DType::u8, {2, 2, 3}, FieldKind::picture},
                                        {"mask", DType::u8, {0, 0}, FieldKind::mask},
                                        {"point", DType::f32, {1, 2}, FieldKind::points}}});
  const std::vector<std::byte> bytes(12, std::byte{1});
  const StoredField more[] = {{std::span(bytes).first(4), Codec::raw, 2, 2, 1}, {std::span(bytes).first(8)}};
  for (int i = 0; i < 3; ++i) writer.add({bytes, Codec::raw, 2, 2, 3, 0, more});
  writer.finish();
}

void save(const std::filesystem::path& folder, const char* target, const char* name,
          const std::string& input) {
  std::filesystem::create_directories(folder / target);
  std::ofstream(folder / target / name, std::ios::binary) << input;
}

constexpr int kSide = 24;

std::vector<std::uint8_t> pixels(int channels) {
  std::vector<std::uint8_t> all;
  for (int i = 0; i < kSide * kSide * channels; ++i) all.push_back(static_cast<std::uint8_t>(i * i / 97 + i));
  return all;
}

std::string progressive_jpeg() {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = info.image_height = kSide;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_simple_progression(&info);
  info.restart_interval = 2;
  jpeg_start_compress(&info, TRUE);
  std::vector<std::uint8_t> all = pixels(3);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = all.data() + info.next_scanline * kSide * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const std::string file(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

std::string png(png_uint_32 format, int channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = kSide;
  image.format = format;
  image.colormap_entries = 16;
  std::vector<std::uint8_t> all = pixels(channels);
  std::array<std::uint8_t, 16 * 3> colours{};
  if ((format & PNG_FORMAT_FLAG_COLORMAP) != 0) {
    for (std::uint8_t& index : all) index %= 16;
    for (std::size_t i = 0; i < colours.size(); ++i) colours[i] = static_cast<std::uint8_t>(5 * i);
  }
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0, all.data(), 0, colours.data()) == 0)
    std::abort();
  return file.substr(0, size);
}

/// EXIF data of one entry, without its mark: the image is to be turned by a quarter.
const std::string kTurned("II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0", 25);
const std::string kXmp = R"(<rdf:Description tiff:Orientation="6"/>)";

std::string deflated(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           text.size());
  return out.substr(0, size);
}

/// What images hold besides pixels. For PNGs the target makes checksums fit.
void make_metadata(const std::filesystem::path& to) {
  const std::string none(1, '\0'), file = png(PNG_FORMAT_RGB, 3);
  std::string hex = "\nexif\n      25\n";
  for (const unsigned char c : kTurned) hex += fmt::format("{:02x}", c);
  const std::pair<const char*, std::string> chunks[] = {
      {"eXIf", kTurned},
      {"tEXt", "Raw profile type exif" + none + hex},
      {"zTXt", "Raw profile type exif" + none + none + deflated(hex)},
      {"iTXt", "XML:com.adobe.xmp" + none + none + none + none + none + kXmp},
      {"iTXt", "XML:com.adobe.xmp" + none + '\1' + none + none + none + deflated(kXmp)},
      {"iCCP", "name" + none + none + deflated(std::string(200, 'p'))},
      {"tRNS", std::string(6, '\7')}};
  for (std::size_t i = 0; i < std::size(chunks); ++i) {
    const auto& [type, data] = chunks[i];
    save(to, "image", fmt::format("png-{}-{}", type, i).c_str(),
         '\x80' + test::with_chunk(file, type, data, i == 0));
  }
  const std::string jpeg = progressive_jpeg();
  const std::pair<char, std::string> segments[] = {
      {'\xe1', "http://ns.adobe.com/xap/1.0/" + none + kXmp},
      {'\xe2', "ICC_PROFILE" + none + "\1\1" + std::string(100, 'p')},
      {'\xee', std::string("Adobe\0d\0\0\0\0\2", 12)}};
  for (const auto& [marker, data] : segments) {
    const std::string head{'\xff', marker, '\0', static_cast<char>(data.size() + 2)};
    save(to, "image", fmt::format("jpeg-{:02x}", static_cast<unsigned char>(marker)).c_str(),
         none + jpeg.substr(0, 2) + head + data + jpeg.substr(2));
  }
}

#ifdef ATHANOR_FUZZ_WEBP
/// Lossy and lossless, and in an extended file with EXIF data and XMP.
void make_webps(const std::filesystem::path& to) {
  const std::string none(1, '\0'), parts = "RIFF0000WEBP";
  for (const bool lossless : {true, false}) {
    std::vector<std::uint8_t> all = pixels(3);
    std::uint8_t* out = nullptr;
    const std::size_t size = lossless ? WebPEncodeLosslessRGB(all.data(), kSide, kSide, 3 * kSide, &out)
                                      : WebPEncodeRGB(all.data(), kSide, kSide, 3 * kSide, 90, &out);
    const std::string file(reinterpret_cast<const char*>(out), size);
    WebPFree(out);
    save(to, "image", lossless ? "webp-lossless" : "webp-lossy", none + file);
    const auto chunk = [&](const char* name, const std::string& data) {
      return name + test::little(data.size(), 4) + data + std::string(data.size() % 2, '\0');
    };
    const std::string head =
        "\x0c" + std::string(3, '\0') + test::little(kSide - 1, 3) + test::little(kSide - 1, 3);
    const std::string chunks =
        chunk("VP8X", head) + file.substr(parts.size()) + chunk("EXIF", kTurned) + chunk("XMP ", kXmp);
    save(to, "image", lossless ? "webp-extended" : "webp-extended-lossy",
         none + "RIFF" + test::little(4 + chunks.size(), 4) + "WEBP" + chunks);
  }
}
#endif

/// A member of a tar archive; the target makes its checksum fit.
std::string tar_member(const std::string& name, const std::string& content, char type,
                       const std::string& link = {}) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(124, fmt::format("{:011o}", content.size()));
  put(156, std::string(1, type));
  put(157, link);
  put(257, std::string("ustar\00000", 8));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

void make_tars(const std::filesystem::path& to) {
  const std::string none(1, '\0'), fits(1, '\1'), jpeg = "\xff\xd8\xff\xe0", end(1024, '\0');
  const auto path = fuzz::folder() / "a.tar";
  write_encoded(create_tar(path));
  const std::string plain = content("a.tar").substr(0, 5 * 1024);
  save(to, "tar", "encoded", none + plain);
  save(to, "tar", "joined", fits + plain + end + plain);
  write_encoded(create_tar(path, {"a", "b%\xff", "c"}));
  save(to, "tar", "named", fits + content("a.tar").substr(0, 8 * 1024));
  const std::string one = tar_member("a/1.jpg", jpeg, '0') + tar_member("a/1.cls", "1", '0');
  save(to, "tar", "links",
       fits + one + tar_member("a/2.jpg", "", '1', "a/1.jpg") + tar_member("a/2.cls", "", '1', "a/1.cls") +
           tar_member("a/3.jpg", "", '2', "a/1.jpg") + end);
  save(to, "tar", "long",
       fits + tar_member("x", std::string(200, 'n') + ".jpg" + none, 'L') + tar_member("n", jpeg, '0') +
           tar_member("x", "15 path=b/1.cls\n", 'x') + tar_member("y", "0", '0') +
           tar_member("z", R"({"label": 1, "json": [1, {}]})", '0') + end);
}

void make_safetensors(const std::filesystem::path& to) {
  const auto path = fuzz::folder() / "a.safetensors";
  const auto save_one = [&](const char* name, const StateDict& entries,
                            const safetensors::Metadata& metadata) {
    safetensors::save(path, entries, metadata);
    const std::string file = content("a.safetensors");
    const std::size_t header =
        static_cast<unsigned char>(file[0]) + 256u * static_cast<unsigned char>(file[1]);
    save(to, "safetensors", name, fuzz::join_parts({file.substr(8, header), file.substr(8 + header)}));
  };
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  StateDict entries;
  entries.set("fc.weight", Tensor::from_bytes(std::as_bytes(std::span(values)), {2, 3}, {DType::f32, kCpu}));
  save_one("plain", entries, {{"format", "pt"}});
  save_one("model", entries,
           {{"class_names", R"(["a%0a", "%ff%25"])"}, {"class_names_are", "percent-encoded"}});
  entries.set("step", std::int64_t{7});
  entries.set("rate", 0.5);
  entries.set("name", std::string("x"));
  save_one("state", entries, {});
}

void make_http(const std::filesystem::path& to) {
  const std::string host = "Host: a\r\n", get = "GET /healthz HTTP/1.1\r\n" + host;
  save(to, "http", "get", get + "\r\n");
  save(to, "http", "two",
       get + "Accept: \t*/*\r\n\r\nPOST /predict?top=1 HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc" +
           get + "\r\n");
  save(to, "http", "chunked",
       "POST /predict HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get +
           "\r\n");
  save(to, "http", "both",
       "POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  save(to, "http", "folded", get + "X: a\r\n b\r\nContent-Length : 1\r\n\r\n");
  save(to, "http", "old", "HEAD / HTTP/1.0\r\n\r\n");
}

/// For the model whose images are 2 x 3; a first byte of 128 or more is for a request with binary tensors.
void make_inference(const std::filesystem::path& to) {
  const std::string name = R"({"id":"1","inputs":[{"name":"images","datatype":)";
  const auto input = [&](const char* datatype, const char* shape, const char* rest) {
    return name + '"' + datatype + R"(","shape":)" + shape + ',' + rest + "}]}";
  };
  const auto sized = [](std::size_t bytes) {
    return R"("parameters":{"binary_data_size":)" + std::to_string(bytes) + '}';
  };
  save(to, "inference", "u8",
       '\0' + input("UINT8", "[1,2,3,1]", R"("data":[[[[0],[1],[2]],[[3],[4],[255]]]])"));
  save(to, "inference", "f32", '\0' + input("FP32", "[1,2,3,1]", R"("data":[0,1.5,-2,3e-5,4,5])"));
  save(to, "inference", "files", '\0' + input("BYTES", "[2]", R"("data":["aGVsbG8=",""])"));
  save(to, "inference", "outputs",
       '\0' +
           std::string(
               R"({"parameters":{"timeout":5,"binary_data_output":true},"outputs":[{"name":"logits",)"
               R"("parameters":{"classification":2,"binary_data":false}},{"name":"classes"}],"inputs":[]})"));
  for (const auto& [datatype, shape, tensor] :
       {std::tuple{"UINT8", "[2,2,3,1]", std::string(12, '\7')},
        std::tuple{"FP32", "[1,2,3,1]", std::string(24, '\0')},
        std::tuple{"BYTES", "[2,1]", std::string("\5\0\0\0hello\1\0\0\0x", 14)}}) {
    save(to, "inference", (std::string("binary_") + datatype).c_str(),
         '\x81' + fuzz::join_parts({input(datatype, shape, sized(tensor.size()).c_str()), tensor}));
  }
}

void make_images(const std::filesystem::path& to) {
  for (const int channels : {1, 3}) {
    const std::vector<std::uint8_t> all = pixels(channels);
    std::vector<std::byte> jpeg;
    encode_jpeg({all.data(), kSide, kSide, channels, kSide * channels}, 80, jpeg);
    const std::string file(reinterpret_cast<const char*>(jpeg.data()), jpeg.size());
    for (const char how : {'\0', '\1', '\x7e'}) {
      save(to, "image", ("jpeg" + std::to_string(channels) + "-" + std::to_string(how)).c_str(), how + file);
    }
  }
  // EXIF data of one entry: the image is to be turned by a quarter.
  static constexpr char kSideways[] =
      "\xff\xe1\0\42Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0";
  const std::string sideways(kSideways, sizeof kSideways);
  const std::string plain = progressive_jpeg();
  save(to, "image", "sideways", '\1' + plain.substr(0, 2) + sideways + plain.substr(2));
  save(to, "image", "progressive", '\x25' + progressive_jpeg());
  save(to, "image", "png-rgb", '\0' + png(PNG_FORMAT_RGB, 3));
  save(to, "image", "png-rgba", '\x24' + png(PNG_FORMAT_RGBA, 4));
  save(to, "image", "png-grey", '\0' + png(PNG_FORMAT_GRAY, 1));
  save(to, "image", "png-colours", '\x24' + png(PNG_FORMAT_RGB_COLORMAP, 1));
  make_metadata(to);
#ifdef ATHANOR_FUZZ_WEBP
  make_webps(to);
#endif
}

/// Three ranks that wait for each other in their last collective, or of which one is behind.
void make_reports(const std::filesystem::path& to) {
  const std::string epoch =
      R"({"event":"epoch","epoch":1,"step":4,"skipped_steps":0,"train_loss":1.5,"val_loss":1.2,"val_accuracy":0.5,)"
      R"("learning_rate":0.1,"images_per_s":1000,"wall_s":0.1,"seconds":{"forward":0.05,"data":0.01}})";
  const std::string steps = R"({"event":"step","step":1,"loss":2.5,"learning_rate":0.01,"grad_norm":3})"
                            "\n"
                            R"({"event":"step","step":2,"loss":2,"learning_rate":0.02,"grad_norm":2})";
  const std::string end =
      R"({"event":"end","test_accuracy":0.5,"test_loss":1.2,"wall_s":0.2,"applied_steps":4,"stopped_by":"epochs"})";
  const std::string config = R"({"program":"train_digits","version":"0.2.0","command":["train_digits"],)"
                             R"("flags":{"lr":{"value":"0.1","from":"default"}}})";
  save(to, "report", "whole", fuzz::join_parts({steps + '\n' + epoch + '\n' + end + '\n', config, ""}));
  save(to, "report", "begun", fuzz::join_parts({steps + '\n' + epoch.substr(0, 40), config, ""}));
  fuzz::put("metrics.jsonl", steps + '\n' + epoch + '\n');
  const std::string page = report::page_of(report::read_runs(fuzz::folder())[0]);
  save(to, "report", "page", fuzz::join_parts({"", "", page}));
}
void make_flights(const std::filesystem::path& to) {
  for (const bool circle : {true, false}) {
    std::vector<std::string> records;
    for (int rank = 0; rank < 3; ++rank) {
      dist::FlightRecord flight(rank, 3);
      for (std::int64_t seq = 0; seq < 3 + (circle ? 0 : rank); ++seq) {
        flight.begin(seq, {"ring all_reduce", DType::f32, 4096, seq});
        if (seq < 2) flight.end();
      }
      flight.waits_for((rank + 1) % 3);
      flight.write((fuzz::folder() / "record").c_str(), rank == 1 ? "error" : "deadline", "why");
      records.push_back(content("record"));
    }
    save(to, "flight", circle ? "circle" : "behind", fuzz::join_parts(records));
  }
}

/// Weights as PyTorch saves them, in each form, and their pickle alone.
void make_torch(const std::filesystem::path& to) {
  const std::vector<test::SavedTensor> tensors = {
      {.name = "weight", .numel = 6, .sizes = {2, 3}, .strides = {3, 1}},
      {.name = "count", .type = "LongStorage", .key = "1", .numel = 1, .sizes = {}, .strides = {}}};
  const test::SavedStorages storages = {{"0", std::string(24, '0')}, {"1", std::string(8, '1')}};
  const std::string pickle = test::state_pickle(tensors), none(1, '\0');
  save(to, "torch", "new", none + test::new_torch_file(pickle, storages));
  save(to, "torch", "zip64", none + test::new_torch_file(pickle, storages, true));
  save(to, "torch", "old", none + test::old_torch_file(test::state_pickle(tensors, true), storages, {6, 1}));
  save(to, "torch", "pickle", "\1" + pickle);
  test::Pickle checkpoint;
  checkpoint.op("}(").text("epoch").integer(3).text("lr").op("G12345678").text("state_dict");
  test::push_state(checkpoint, tensors);
  save(to, "torch", "checkpoint", "\1" + checkpoint.op("u.").bytes);
  // Objects of classes, by each opcode that makes one, beside weights that lie deeper.
  test::Pickle objects;
  objects.op("}(").text("args").global("argparse", "Namespace").op(")\x81}").text("lr").integer(1).op("sb");
  objects.text("set").op("\x8f(").integer(1).op("\x90").text("old").op("(iabc\nName\n").text("made");
  objects.op("(")
      .global("abc", "Name")
      .op("o")
      .text("more")
      .global("collections", "defaultdict")
      .op(")}\x92");
  objects.text("model").op("}").text("state_dict");
  test::push_state(objects, tensors);
  save(to, "torch", "objects", "\1" + objects.op("su.").bytes);
}

void make(const std::filesystem::path& to) {
  make_torch(to);
  make_images(to);
  make_flights(to);
  make_reports(to);
  const std::filesystem::path& from = fuzz::folder();
  for (const std::int64_t channels : {1, 3}) {
    const char* name = channels == 1 ? "grey" : "rgb";
    write_raw(create_idx(from / "images"), 3, 2, channels);
    save(to, "idx", name, fuzz::join_parts({content("images"), content("labels")}));
    write_raw(create_npy(from / "x.npy"), 3, 2, channels);
    save(to, "npy", name, fuzz::join_parts({content("x.npy"), content("y.npy")}));
    write_raw(create_npz(from / "a.npz"), 3, 2, channels);
    save(to, "npz", name, content("a.npz"));
    write_raw(create_raw(from / "x.bin"), 3, 2, channels);
    save(to, "raw", name, fuzz::join_parts({content("x.json"), content("x.labels.bin"), content("x.bin")}));
    write_raw(create_tfrecord(from / "a.tfrecord"), 2, 2, channels);
    save(to, "tfrecord", name, std::string(1, '\0') + content("a.tfrecord"));
  }
  write_encoded(create_tfrecord(from / "a.tfrecord"));
  const std::string records = content("a.tfrecord");
  save(to, "tfrecord", "encoded", std::string(1, '\0') + records);
  // One record's data, for the target that puts the CRCs around it.
  const std::string record = records.substr(12, static_cast<unsigned char>(records[0]));
  save(to, "tfrecord", "record", "\1" + record);
  save(to, "example", "record", record);
  // The first byte says which CRCs the target makes fit, and how it reads; 0: none, unchecked, mapped.
  for (const char how : {'\0', '\x0f', '\x1f'}) {
    const std::string suffix = std::to_string(static_cast<int>(how));
    write_raw(packed(from / "a.athp"), 3, 2, 3);
    save(to, "packed", ("raw" + suffix).c_str(), how + content("a.athp"));
    write_raw(packed(from / "a.athp"), 3, 40, 3);
    save(to, "packed", ("pages" + suffix).c_str(), how + content("a.athp"));
    write_encoded(packed(from / "a.athp"));
    save(to, "packed", ("encoded" + suffix).c_str(), how + content("a.athp"));
    write_fields(from / "a.athp");
    save(to, "packed", ("fields" + suffix).c_str(), how + content("a.athp"));
  }
  save(to, "table", "csv",
       std::string(1, '\0') + "image,mask,p.0:points,p.1,label\r\na.png,\"b,\"\"c.png\",1,2.5,cat\n");
  save(to, "table", "jsonl", "\1{\"image\": \"a.png\", \"box:boxes\": [[1, 2, 3, 4]], \"label\": 3}\n");
  const std::string words = "bytes";
  const FeatureMap kinds{
      {"floats", std::vector<float>{1, 2}},
      {"ints", std::vector<std::int64_t>{-1, 300}},
      {"none", {}},
      {"strings", std::vector<std::span<const std::byte>>{std::as_bytes(std::span(words))}}};
  save(to, "example", "kinds", write_example(kinds));
  make_tars(to);
  make_safetensors(to);
  make_http(to);
  make_inference(to);
  save(to, "multipart", "two",
       fuzz::join_parts(
           {"multipart/form-data; boundary=\"XX\"",
            "--XX\r\nContent-Disposition: form-data; name=\"a\"; filename=\"b\\\"c.png\"\r\n\r\none\r\n"
            "--XX\r\ncontent-disposition: form-data; name=file\r\n\r\ntwo\r\n--XX--\r\n"}));
  save(to, "cifar", "ten", "\1" + std::string(3073, '\5'));
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_corpus FOLDER\n";
    return 2;
  }
  athanor::make(argv[1]);
}
