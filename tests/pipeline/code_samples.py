"""Small programs in the languages of the extra ``grammars``, with the names they define."""

from __future__ import annotations

SAMPLES: dict[str, tuple[str, str]] = {
    "ada": (
        "Mill Mill.Turn Mill.Grind",
        """package body Mill is
   function Turn (Water : Integer) return Integer is
   begin
      return Water * 2;
   end Turn;

   procedure Grind (Corn : in out Integer) is
   begin
      Corn := Corn / 2;
   end Grind;
end Mill;
""",
    ),
    "csharp": (
        (
            "Mill Mill.Wheel Mill.Wheel.Size Mill.Wheel.Wheel Mill.Wheel.Turn Mill.Part "
            "Mill.Part.Name Mill.Kind Mill.Gate Mill.Sluice"
        ),
        """using System;
namespace Mill {
    public class Wheel : Part {
        public int Size { get; set; }
        public Wheel(int size) { Size = size; }
        /// Turn it.
        public int Turn(int water) { return water * 2; }
    }
    interface Part { string Name(); }
    enum Kind { Wood, Stone }
    record Gate(int Width);
    struct Sluice { public int Depth; }
}
""",
    ),
    "dart": (
        ("Part Part.name Wheel Wheel.Wheel Wheel.name Wheel.turn Kind Wet Wet.soak Dry Dry.dry grind"),
        """import 'dart:io';

abstract class Part { String name(); }

class Wheel extends Part {
  int size = 0;
  Wheel(this.size);
  String name() { return 'wheel'; }
  int turn(int water) { return water * 2; }
}

enum Kind { wood, stone }
mixin Wet { void soak() {} }
extension Dry on Wheel { void dry() {} }

int grind(int corn) { return corn ~/ 2; }
""",
    ),
    "elixir": (
        "Mill.Wheel Mill.Wheel.turn Mill.Wheel.grind Mill.Wheel.wet",
        """defmodule Mill.Wheel do
  @doc "Turn it."
  def turn(water) do
    water * 2
  end

  defp grind(corn), do: corn / 2

  defmacro wet(x) do
    x
  end
end
""",
    ),
    "fortran": (
        "mill mill.wheel mill.turn mill.grind main",
        """module mill
  implicit none
  type :: wheel
    integer :: size
  end type wheel
contains
  function turn(water) result(r)
    integer, intent(in) :: water
    integer :: r
    r = water * 2
  end function turn

  subroutine grind(corn)
    integer, intent(inout) :: corn
    corn = corn / 2
  end subroutine grind
end module mill

program main
  print *, 1
end program main
""",
    ),
    "haskell": (
        "Kind Part Part.name turn grind",
        """module Mill where

data Kind = Wood | Stone

class Part a where
  name :: a -> String

instance Part Kind where
  name Wood = "wood"
  name Stone = "stone"

-- | Turn it.
turn :: Int -> Int
turn water = water * 2

grind :: Int -> Int
grind 0 = 0
grind corn = corn `div` 2
""",
    ),
    "terraform": (
        "variable.size resource.aws_instance.wheel module.gate",
        """variable "size" {
  type = number
}

resource "aws_instance" "wheel" {
  ami = "x"
  tags = { a = 1 }
}

module "gate" {
  source = "./gate"
}
""",
    ),
    "julia": (
        "Mill Mill.Wheel Mill.turn Mill.grind Mill.wet",
        """module Mill

struct Wheel
    size::Int
end

"Turn it."
function turn(w::Wheel, water)
    return water * 2
end

grind(corn) = corn / 2

macro wet(x)
    x
end

end
""",
    ),
    "kotlin": (
        "Part Part.name Wheel Wheel.name Wheel.turn Wheel.build Gate Gate.open grind",
        """package mill

interface Part {
    fun name(): String
}

class Wheel(val size: Int) : Part {
    override fun name(): String = "wheel"

    // Turn it.
    fun turn(water: Int): Int {
        return water * 2
    }

    companion object {
        fun build() = Wheel(1)
    }
}

object Gate {
    fun open() {}
}

fun grind(corn: Int): Int {
    return corn / 2
}
""",
    ),
    "lua": (
        "M.turn M:open grind M.close",
        """local M = {}
-- Turn it.
function M.turn(water)
  return water * 2
end
function M:open() end
local function grind(corn)
  return corn / 2
end
M.close = function(x) return x end
return M
""",
    ),
    "make": (
        "all wheel grind",
        """CC = gcc

# Build it.
all: wheel gate
\t$(CC) -o mill

wheel: wheel.c
\t$(CC) -c wheel.c

define grind
echo $(1)
endef
""",
    ),
    "objc": (
        "Wheel Wheel.turn Wheel.build Part Part.name grind",
        """#import <Foundation/Foundation.h>

@interface Wheel : NSObject
- (int)turn:(int)water;
@end

@implementation Wheel
- (int)turn:(int)water { return water * 2; }
+ (instancetype)build { return [self new]; }
@end

@protocol Part
- (NSString *)name;
@end

int grind(int corn) { return corn / 2; }
""",
    ),
    "ocaml": (
        "kind Wheel Wheel.turn PART PART.name grind sift gate",
        """type kind = Wood | Stone

module Wheel = struct
  let turn water = water * 2
end

module type PART = sig
  val name : string
end

let rec grind corn = if corn = 0 then 0 else grind (corn - 1)
and sift x = x

class gate = object method opened = true end
""",
    ),
    "php": (
        "Part Part.name Wheel Wheel.turn Wet Wet.soak grind",
        """<?php
namespace Mill;

interface Part { public function name(): string; }

class Wheel implements Part {
    public function turn(int $water): int { return $water * 2; }
}

trait Wet { function soak() { return 1; } }

function grind($corn) { return $corn / 2; }
""",
    ),
    "powershell": (
        "Invoke-Turn Wheel Wheel.Turn Kind",
        """# Turn it.
function Invoke-Turn {
    param($Water)
    return $Water * 2
}

class Wheel {
    [int] $Size
    [int] Turn([int] $water) { return $water * 2 }
}

enum Kind { Wood; Stone }
""",
    ),
    "ruby": (
        "Mill Mill.Wheel Mill.Wheel.turn Mill.Wheel.build grind",
        """# The mill.
module Mill
  class Wheel < Part
    # Turn it.
    def turn(water)
      water * 2
    end

    def self.build
      new
    end
  end
end

def grind(corn)
  corn / 2
end
""",
    ),
    "scala": (
        "Part Part.name Wheel Wheel.name Wheel.turn Gate Gate.open Kind",
        """package mill

trait Part { def name: String }

class Wheel(size: Int) extends Part {
  def name: String = "wheel"
  def turn(water: Int): Int = { water * 2 }
}

object Gate { def open(): Unit = {} }

enum Kind { case Wood, Stone }
""",
    ),
    "shell": (
        "grind turn",
        """#!/bin/sh
# Grind corn.
grind() {
    echo "$1"
}

function turn {
    echo wheel
}
grind corn
""",
    ),
    "sql": (
        "wheel big turn idx_wheel",
        """-- Wheels of the mill.
CREATE TABLE wheel (id integer PRIMARY KEY, size integer NOT NULL);

CREATE VIEW big AS SELECT * FROM wheel WHERE size > 2;

CREATE FUNCTION turn(water integer) RETURNS integer AS $$ SELECT water * 2 $$ LANGUAGE sql;

CREATE INDEX idx_wheel ON wheel (size);

INSERT INTO wheel VALUES (1, 2);
""",
    ),
}
