// What all tests include, for builds that read it once (add_test.cmake).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
