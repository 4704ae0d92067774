#include "data/image/encode_jpeg.h"

#include <csetjmp>
#include <cstdio>  // for jpeglib.h
#include <cstdlib>

#include <jpeglib.h>

#include "tensor/error.h"

namespace athanor {
namespace {

/// What libjpeg's errors jump over must need no destructor: the encoder and its output live here.
struct Encoder {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape{};
  char message[JMSG_LENGTH_MAX] = {};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }

  [[noreturn]] static void give_up(j_common_ptr info) {
    auto& encoder = *static_cast<Encoder*>(info->client_data);
    info->err->format_message(info, encoder.message);
    std::longjmp(encoder.escape, 1);
  }
  static void say_nothing(j_common_ptr) {}
};

bool encode(Encoder& encoder, const ImageView& image, int quality) {
  jpeg_compress_struct& info = encoder.info;
  info.err = jpeg_std_error(&encoder.errors);
  encoder.errors.error_exit = Encoder::give_up;
  encoder.errors.output_message = Encoder::say_nothing;
  info.client_data = &encoder;
  if (setjmp(encoder.escape) != 0) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &encoder.bytes, &encoder.size);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);  // 4:2:0
  jpeg_set_quality(&info, quality, TRUE);
  info.optimize_coding = TRUE;
  info.dct_method = JDCT_ISLOW;  // the same bits with and without vectors
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.row(info.next_scanline));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

void encode_jpeg(const ImageView& image, int quality, std::vector<std::byte>& out) {
  ATH_CHECK(
      (image.channels == 1 || image.channels == 3) && image.height > 0 && image.width > 0 &&
          image.height <= kMaxJpegSide && image.width <= kMaxJpegSide && quality >= 1 && quality <= 100,
      "jpeg: must have 1 or 3 channels, sides in [1, {}] and a quality in [1, 100], but got {}x{}x{} and {}",
      kMaxJpegSide, image.height, image.width, image.channels, quality);
  Encoder encoder;
  if (!encode(encoder, image, quality))
    detail::fail<BackendError>("jpeg: cannot encode: {}", encoder.message);
  const auto* first = reinterpret_cast<const std::byte*>(encoder.bytes);
  out.assign(first, first + encoder.size);
}

}  // namespace athanor
