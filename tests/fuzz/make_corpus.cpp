// make_corpus FOLDER: the inputs that fuzzing starts from, FOLDER/NAME/* for the target NAME, made by our own
// writers.

#include <array>
#include <cstdio>  // for jpeglib.h
#include <iostream>
#include <sstream>

#include <jpeglib.h>
#include <png.h>

#include "data/formats/idx.h"
#include "data/formats/import/hdf5.h"
#include "data/formats/lmdb.h"
#include "data/formats/npy.h"
#include "data/formats/packed_writer.h"
#include "data/formats/raw.h"
#include "data/formats/tar.h"
#include "data/formats/tfrecord.h"
#include "data/image/jpeg.h"
#include "dist/watch/flight_record.h"
#include "fuzz.h"
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
}

void make(const std::filesystem::path& to) {
  make_torch(to);
  make_images(to);
  make_flights(to);
  make_reports(to);
  const std::filesystem::path& from = fuzz::folder();
  for (const std::int64_t channels : {1, 3}) {
    const char* name = channels == 1 ? "grey" : "rgb";
    write_raw(create_idx(from / "images", from / "labels"), 3, 2, channels);
    save(to, "idx", name, fuzz::join_parts({content("images"), content("labels")}));
    write_raw(create_npy(from / "x.npy", from / "y.npy"), 3, 2, channels);
    save(to, "npy", name, fuzz::join_parts({content("x.npy"), content("y.npy")}));
    write_raw(create_npz(from / "a.npz"), 3, 2, channels);
    save(to, "npz", name, content("a.npz"));
    write_raw(create_raw(from / "x.bin"), 3, 2, channels);
    save(to, "raw", name, fuzz::join_parts({content("x.json"), content("x.labels.bin"), content("x.bin")}));
    write_raw(create_tfrecord(from / "a.tfrecord"), 2, 2, channels);
    save(to, "tfrecord", name, std::string(1, '\0') + content("a.tfrecord"));
#ifdef ATHANOR_FUZZ_LMDB
    write_raw(create_lmdb(from / "data.mdb"), 3, 2, channels);
    save(to, "lmdb", name, content("data.mdb"));
#endif
#ifdef ATHANOR_FUZZ_HDF5
    write_raw(create_hdf5(from / "a.h5", channels == 1 ? 0 : 6), 3, 2, channels);
    save(to, "hdf5", name, content("a.h5"));
#endif
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
  const std::vector<std::byte> message = write_example(kinds);
  save(to, "example", "kinds", {reinterpret_cast<const char*>(message.data()), message.size()});
  write_encoded(create_tar(from / "a.tar"));
  save(to, "tar", "encoded", content("a.tar").substr(0, 6 * 1024));
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
