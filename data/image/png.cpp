#include "data/image/png.h"

#include <csetjmp>
#include <cstring>
#include <memory_resource>
#include <new>
#include <vector>

#include <png.h>

#include "data/image/detail/over_white.h"
#include "data/image/detail/png_metadata.h"
#include "data/image/detail/room.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::size_t kSignature = 8;

}  // namespace

struct PngDecoder::State {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf escape{};
  char message[128] = {};
  /// An image's memory is allocated in pieces and freed all at once; the pool reuses it.
  std::pmr::unsynchronized_pool_resource pool{{0, std::size_t{1} << 22}};
  std::pmr::monotonic_buffer_resource arena{std::size_t{1} << 18, &pool};

  const png_byte* bytes = nullptr;
  std::size_t size = 0, at = 0;
  bool opened = false, out_of_memory = false;
  Orientation orientation;

  int passes = 1;                           // over an interlaced image, each over all of it
  std::int64_t first_row = 0, end_row = 0;  // stored rows
  std::size_t row_bytes = 0;                // of RGB or RGBA
  bool classes = false;
  std::vector<std::uint8_t> pixels, skipped;

  ~State() { close(); }
  png_bytep row(std::int64_t y) {
    if (y < first_row) return skipped.data();
    return pixels.data() + static_cast<std::size_t>(y - first_row) * row_bytes;
  }
  void close() {
    if (png) png_destroy_read_struct(&png, &info, nullptr);
    arena.release();
  }

  [[noreturn]] static void give_up(png_structp png, png_const_charp text) {
    State& state = *static_cast<State*>(png_get_error_ptr(png));
    std::strncpy(state.message, text, sizeof state.message - 1);
    std::longjmp(state.escape, 1);
  }
  static void read(png_structp png, png_bytep to, std::size_t count) {
    State& state = *static_cast<State*>(png_get_io_ptr(png));
    if (count > state.size - state.at) give_up(png, "the data ends here");
    std::memcpy(to, state.bytes + state.at, count);
    state.at += count;
  }
};

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

bool PngDecoder::recognises(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignature) == 0;
}

/// Calls step(state). On an error libpng jumps here, so no object with a destructor may live in between.
void PngDecoder::attempt(void (*step)(State&)) {
  if (setjmp(state_->escape) == 0) {
    step(*state_);
    return;
  }
  if (state_->out_of_memory) throw std::bad_alloc();
  detail::fail<IoError>("png: offset {}: must be complete PNG data, but got: {}", state_->at,
                        state_->message);
}

ImageSize PngDecoder::open(std::span<const std::byte> bytes) {
  State& s = *state_;
  s.close();
  s.bytes = reinterpret_cast<const png_byte*>(bytes.data());
  s.size = bytes.size();
  s.at = 0;
  s.opened = s.out_of_memory = false;
  attempt([](State& state) {
    // libpng's warnings concern only data besides the pixels, which is ignored.
    state.png = png_create_read_struct_2(
        PNG_LIBPNG_VER_STRING, &state, State::give_up, [](png_structp, png_const_charp) {}, &state,
        [](png_structp png, png_alloc_size_t size) -> png_voidp {
          State& owner = *static_cast<State*>(png_get_mem_ptr(png));
          try {
            return owner.arena.allocate(size);
          } catch (const std::bad_alloc&) {
            owner.out_of_memory = true;
            return nullptr;
          }
        },
        [](png_structp, png_voidp) {});
    state.info = state.png ? png_create_info_struct(state.png) : nullptr;
    if (!state.info) std::longjmp(state.escape, 1);  // out of memory
    png_set_read_fn(state.png, &state, State::read);
    png_set_user_limits(state.png, static_cast<png_uint_32>(kMaxPixels),
                        static_cast<png_uint_32>(kMaxPixels));
    png_set_chunk_malloc_max(state.png, 1 << 20);
    // Texts and profiles are compressed: skipped, they need no memory.
    png_set_keep_unknown_chunks(state.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(state.png, state.info);
  });
  const ImageSize size{png_get_image_height(s.png, s.info), png_get_image_width(s.png, s.info)};
  if (size.height * size.width > kMaxPixels) {
    detail::fail<IoError>("png: image must have at most {} pixels, but is {}x{}", kMaxPixels, size.width,
                          size.height);
  }
  s.orientation = detail::png_orientation(bytes);
  s.opened = true;
  return size;
}

const Orientation& PngDecoder::orientation() const {
  return state_->orientation;
}

ImageView PngDecoder::decode(const Box& box, bool classes) {
  State& s = *state_;
  const std::int64_t height = s.opened ? png_get_image_height(s.png, s.info) : 0;
  const std::int64_t width = s.opened ? png_get_image_width(s.png, s.info) : 0;
  ATH_CHECK(s.opened && holds({height, width}, box),
            "png: box must lie in the opened image of {}x{}, but is {}x{} at ({}, {})", height, width,
            box.height, box.width, box.top, box.left);
  s.opened = false;
  s.classes = classes;
  const int kind = png_get_color_type(s.png, s.info), bits = png_get_bit_depth(s.png, s.info);
  if (classes && ((kind != PNG_COLOR_TYPE_PALETTE && kind != PNG_COLOR_TYPE_GRAY) || bits > 8))
    detail::fail<IoError>(
        "png: a mask must be grey or have a palette, of at most 8 bits, but has {} channels of {}",
        png_get_channels(s.png, s.info), bits);
  attempt([](State& state) {
    if (state.classes) {
      png_set_packing(state.png);  // one byte per value, for any bit depth
    } else {
      png_set_expand(state.png);  // palettes, less than 8 bits, a transparent colour
      png_set_scale_16(state.png);
      png_set_gray_to_rgb(state.png);
    }
    state.passes = png_set_interlace_handling(state.png);
    png_read_update_info(state.png, state.info);
    state.row_bytes = png_get_rowbytes(state.png, state.info);
  });
  s.first_row = s.passes > 1 ? 0 : box.top;
  s.end_row = s.passes > 1 ? height : box.top + box.height;
  const std::size_t needed = s.row_bytes * static_cast<std::size_t>(s.end_row - s.first_row);
  detail::make_room(s.pixels, needed);
  detail::make_room(s.skipped, s.row_bytes);
  attempt([](State& state) {
    for (int pass = 0; pass < state.passes; ++pass) {
      for (std::int64_t y = 0; y < state.end_row; ++y) png_read_row(state.png, state.row(y), nullptr);
    }
  });
  const auto channels = static_cast<std::int64_t>(s.row_bytes) / width;
  if (channels == 4) detail::lay_over_white({s.pixels.data(), needed});
  s.close();
  const std::int64_t result = classes ? 1 : 3, stride = width * result;
  return {s.pixels.data() + (box.top - s.first_row) * stride + box.left * result, box.height, box.width,
          result, stride};
}

}  // namespace athanor
