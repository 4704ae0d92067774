#pragma once

#include <cstddef>
#include <span>

#include "data/image/orientation.h"

namespace athanor::detail {

/// The orientation of a PNG file by its metadata, before or after the pixels: an eXIf chunk; without one,
/// EXIF data that ImageMagick wrote as a text in hexadecimal; without its tag, XMP. Chunks with a wrong
/// checksum are ignored. Never throws an error of the file. Source: PNG specification, third edition, 5.3
/// and 11.3.
Orientation png_orientation(std::span<const std::byte> file);

}  // namespace athanor::detail
