#pragma once

#include <string>

#include "disk.h"

inline void save(Disk& disk, const std::string& text) {
  disk.create("checkpoint");
  disk.write("checkpoint", text);
}
