#include "data/image/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // for jpeglib.h
#include <cstdlib>
#include <iterator>
#include <new>

#include <jerror.h>
#include <jpeglib.h>

#include "data/image/detail/room.h"
#include "tensor/base/error.h"

#if !defined(LIBJPEG_TURBO_VERSION)
#error "libjpeg-turbo is needed: other libjpegs cannot decode parts of an image"
#endif

namespace athanor {
namespace {

// Number of extra columns decoded on each side of a part: at the edge of the decoded area, libjpeg's smooth
// upsampling lacks a neighbour and gives other pixels than inside.
constexpr std::int64_t kMargin = 2;
// A tiny file can request any number of passes over the image. Encoders make about ten.
constexpr int kMaxScans = 500;
/// Cyan, magenta, yellow and black to RGB, in place.
void cmyk_to_rgb(std::span<std::uint8_t> pixels, bool inverted) {
  const std::uint8_t* from = pixels.data();
  std::uint8_t* to = pixels.data();  // never ahead of `from`
  for (std::size_t i = 0; i < pixels.size(); i += 4, from += 4) {
    const auto light = [&](int c) { return inverted ? from[c] : 255 - from[c]; };
    const int black = light(3);
    for (int c = 0; c < 3; ++c) *to++ = static_cast<std::uint8_t>((light(c) * black + 127) / 255);
  }
}

constexpr int kApp1 = JPEG_APP0 + 1;  // the segment of EXIF data, of XMP, and of others
constexpr std::string_view kXmpMark("http://ns.adobe.com/xap/1.0/\0", 29);

/// libjpeg's warnings that leave every pixel as it is. The others are errors: the file or a segment ends too
/// early, a code is bad, a restart marker is missing, passes of a progressive image contradict each other.
constexpr int kHarmlessWarnings[] = {
    JWRN_EXTRANEOUS_DATA,  // bytes between two segments: they are skipped
    JWRN_NOT_SEQUENTIAL,   // numbers of a progressive pass in a sequential image, which does without them
    JWRN_ADOBE_XFORM,      // an unknown kind of colours in Adobe's segment: taken for YCbCr, as everywhere
    JWRN_JFIF_MAJOR,       // an unknown version in JFIF's segment, which holds nothing about pixels
};

/// libjpeg's errors jump over frames, which must not need destructors: callers keep such objects elsewhere.
struct Errors {
  jpeg_error_mgr manager{};
  std::jmp_buf escape{};
  char message[JMSG_LENGTH_MAX] = {};

  /// Directs errors of `info` to `message`, with a jump to `escape`.
  template <class Info> void watch(Info& info) {
    info.err = jpeg_std_error(&manager);
    info.client_data = this;
    manager.error_exit = give_up;
    manager.output_message = [](j_common_ptr) {};
  }
  [[noreturn]] static void give_up(j_common_ptr info) {
    auto& errors = *static_cast<Errors*>(info->client_data);
    info->err->format_message(info, errors.message);
    std::longjmp(errors.escape, 1);
  }
};

struct Encoder : Errors {
  jpeg_compress_struct info{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
};

bool encode(Encoder& encoder, const ImageView& image, int quality) {
  jpeg_compress_struct& info = encoder.info;
  encoder.watch(info);
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

struct JpegDecoder::State : Errors {
  jpeg_decompress_struct info{};
  jpeg_progress_mgr progress{};

  const unsigned char* bytes = nullptr;
  std::size_t size = 0;
  bool opened = false;
  Orientation orientation;
  char warning[JMSG_LENGTH_MAX] = {};
  std::vector<std::byte> exif;

  int reduce = 1;
  JDIMENSION first_column = 0, columns = 0;  // decoded columns
  JDIMENSION first_row = 0, end_row = 0;
  std::vector<std::uint8_t> pixels;
  std::size_t stride = 0;

  ~State() { jpeg_destroy_decompress(&info); }

  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;  // no warning
    State& state = *static_cast<State*>(static_cast<Errors*>(info->client_data));
    if (!state.is_harmless(info->err->msg_code)) give_up(info);
    if (state.warning[0] == 0) info->err->format_message(info, state.warning);
  }
  /// Bytes left over behind a scan's data are no such bytes between segments: a code in them was damaged.
  bool is_harmless(int warning_code) const {
    if (warning_code == JWRN_EXTRANEOUS_DATA && info.input_scan_number > 0) return false;
    return std::find(std::begin(kHarmlessWarnings), std::end(kHarmlessWarnings), warning_code) !=
           std::end(kHarmlessWarnings);
  }
  void find_orientation();
  static void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
    State& state = *static_cast<State*>(static_cast<Errors*>(info->client_data));
    std::snprintf(state.message, sizeof state.message, "more than %d scans", kMaxScans);
    std::longjmp(state.escape, 1);
  }

  /// libjpeg-turbo 2.1 takes wrong columns of a chroma component that is reduced less than others and then
  /// upsampled: for example with one sample per four pixels.
  bool can_crop() const {
    if (reduce == 1) return true;
    return std::all_of(info.comp_info, info.comp_info + info.num_components, [&](const auto& component) {
      return component.h_samp_factor * 2 >= info.max_h_samp_factor;
    });
  }
  bool is_cmyk() const { return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK; }
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.watch(s.info);
  s.manager.emit_message = State::on_message;
  if (setjmp(s.escape) != 0)
    detail::fail<BackendError>("jpeg: the decoder failed to initialize: {}", s.message);
  jpeg_create_decompress(&s.info);
  s.progress.progress_monitor = State::on_progress;
  jpeg_save_markers(&s.info, kApp1, 0xffff);
}

JpegDecoder::~JpegDecoder() = default;

/// Calls step(state). On an error libjpeg jumps here, so no object with a destructor may live in between.
void JpegDecoder::attempt(void (*step)(State&)) {
  State& s = *state_;
  if (setjmp(s.escape) == 0) {
    step(s);
    return;
  }
  if (s.manager.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  const std::size_t left = s.info.src ? s.info.src->bytes_in_buffer : s.size;
  detail::fail<IoError>("jpeg: offset {}: must be complete JPEG data, but got: {}",
                        s.size - std::min(left, s.size), s.message);
}

ImageSize JpegDecoder::open(std::span<const std::byte> bytes) {
  State& s = *state_;
  s.bytes = reinterpret_cast<const unsigned char*>(bytes.data());
  s.size = bytes.size();
  s.opened = false;
  s.warning[0] = 0;
  attempt([](State& state) {
    jpeg_abort_decompress(&state.info);
    jpeg_mem_src(&state.info, state.bytes, static_cast<unsigned long>(state.size));
    jpeg_read_header(&state.info, TRUE);
  });
  const ImageSize size{s.info.image_height, s.info.image_width};
  if (size.height * size.width > kMaxPixels) {
    detail::fail<IoError>("jpeg: image must have at most {} pixels, but is {}x{}", kMaxPixels, size.width,
                          size.height);
  }
  if (s.info.jpeg_color_space == JCS_UNKNOWN) {
    detail::fail<IoError>("jpeg: colours must be grey, RGB or CMYK, but there are {} components",
                          s.info.num_components);
  }
  s.find_orientation();
  s.opened = true;
  return size;
}

/// EXIF data may continue in further segments, which repeat the mark. Of several XMPs the last one counts.
void JpegDecoder::State::find_orientation() {
  exif.clear();
  std::span<const std::byte> xmp;
  for (jpeg_saved_marker_ptr marker = info.marker_list; marker; marker = marker->next) {
    if (marker->marker != kApp1) continue;
    const auto data = std::as_bytes(std::span(marker->data, marker->data_length));
    const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
    if (text.starts_with(kExifMark)) {
      const auto more = data.subspan(kExifMark.size());
      exif.insert(exif.end(), more.begin(), more.end());
    } else if (text.starts_with(kXmpMark)) {
      xmp = data.subspan(kXmpMark.size());
    }
  }
  orientation = exif_orientation(exif, xmp);
}

std::string_view JpegDecoder::warning() const {
  return state_->warning;
}

const Orientation& JpegDecoder::orientation() const {
  return state_->orientation;
}

bool JpegDecoder::is_plain() const {
  const jpeg_decompress_struct& info = state_->info;
  const jpeg_component_info* const each = info.comp_info;
  return state_->opened && !info.progressive_mode && !info.arith_code && info.data_precision == 8 &&
         info.num_components == 3 && info.comps_in_scan == 3 && info.jpeg_color_space == JCS_YCbCr &&
         each[0].h_samp_factor <= 2 && each[0].v_samp_factor <= 2 &&
         std::all_of(each + 1, each + 3,
                     [](const auto& one) { return one.h_samp_factor == 1 && one.v_samp_factor == 1; });
}

bool JpegDecoder::has_several_scans() const {
  return jpeg_has_multiple_scans(&state_->info) != FALSE;
}

ImageView JpegDecoder::decode(const Box& box, int reduce) {
  State& s = *state_;
  ATH_CHECK(s.opened && (reduce == 1 || reduce == 2 || reduce == 4 || reduce == 8),
            "jpeg: decode must follow open, and reduce must be 1, 2, 4 or 8, but got {}", reduce);
  const auto reduced = [&](JDIMENSION side) { return (std::int64_t{side} + reduce - 1) / reduce; };
  const std::int64_t height = reduced(s.info.image_height), width = reduced(s.info.image_width);
  ATH_CHECK(holds({height, width}, box), "jpeg: box must lie in an image of {}x{}, but is {}x{} at ({}, {})",
            height, width, box.height, box.width, box.top, box.left);
  s.opened = false;
  s.reduce = reduce;
  s.first_column = static_cast<JDIMENSION>(std::max<std::int64_t>(box.left - kMargin, 0));
  s.columns = static_cast<JDIMENSION>(std::min(box.left + box.width + kMargin, width)) - s.first_column;
  s.first_row = static_cast<JDIMENSION>(box.top);
  s.end_row = static_cast<JDIMENSION>(box.top + box.height);
  attempt([](State& state) {
    jpeg_decompress_struct& info = state.info;
    info.out_color_space = state.is_cmyk() ? JCS_CMYK : JCS_RGB;
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(state.reduce);
    info.dct_method = JDCT_ISLOW;
    info.do_fancy_upsampling = TRUE;
    info.do_block_smoothing = FALSE;
    info.progress = jpeg_has_multiple_scans(&info) ? &state.progress : nullptr;
    jpeg_start_decompress(&info);
    if (!state.can_crop()) {
      state.first_column = 0;
    } else if (state.columns < info.output_width) {
      jpeg_crop_scanline(&info, &state.first_column, &state.columns);
    }
  });
  s.stride = std::size_t{s.info.output_width} * static_cast<std::size_t>(s.info.output_components);
  const std::size_t needed = s.stride * static_cast<std::size_t>(box.height);
  detail::make_room(s.pixels, needed);
  attempt([](State& state) {
    jpeg_decompress_struct& info = state.info;
    if (state.first_row > 0) jpeg_skip_scanlines(&info, state.first_row);
    while (info.output_scanline < state.end_row) {
      constexpr JDIMENSION kRows = 8;
      JSAMPROW rows[kRows];
      const JDIMENSION count = std::min(kRows, state.end_row - info.output_scanline);
      for (JDIMENSION i = 0; i < count; ++i) {
        rows[i] = state.pixels.data() + state.stride * (info.output_scanline - state.first_row + i);
      }
      jpeg_read_scanlines(&info, rows, count);
    }
  });
  if (s.is_cmyk()) {
    cmyk_to_rgb({s.pixels.data(), needed}, s.info.saw_Adobe_marker != FALSE);
    s.stride = s.stride / 4 * 3;
  }
  jpeg_abort_decompress(&s.info);
  return {s.pixels.data() + (box.left - s.first_column) * 3, box.height, box.width, 3,
          static_cast<std::int64_t>(s.stride)};
}

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
