#include "data/image/webp.h"
#include "tensor/base/error.h"

namespace athanor {

ImageSize WebpDecoder::open(std::span<const std::byte>) {
  detail::fail<IoError>(
      "webp: reading needs libwebp, but this build was made without it; install libwebp-dev and configure "
      "with -DATHANOR_WEBP=ON, or convert the image to PNG first, with dwebp IMAGE.webp -o IMAGE.png "
      "(package webp)");
}

ImageView WebpDecoder::decode(const Box&) {
  detail::fail<>("webp: an image must have been opened");
}

}  // namespace athanor
